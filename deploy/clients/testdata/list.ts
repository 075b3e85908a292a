// Prints all pets, a line each.
import { Client } from "../../../shared/api/clients/typescript/petgate.ts";

const client = new Client({ url: process.env.PETGATE_URL!, token: process.env.PETGATE_TOKEN! });
for await (const pet of client.listPets({ limit: 5 })) console.log(pet.name);

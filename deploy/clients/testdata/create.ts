// Creates pets, four at a time, until standard input ends. Prints the name of each pet whose call succeeded.
import { webcrypto } from "node:crypto";
import { Client } from "../../../shared/api/clients/typescript/petgate.ts";

globalThis.crypto ??= webcrypto; // Node 18

const client = new Client({ url: process.env.PETGATE_URL!, token: process.env.PETGATE_TOKEN!, attemptsMax: 20 });
let more = true;
process.stdin.on("end", () => (more = false)).resume();

async function create(worker: number): Promise<void> {
  for (let i = 0; more; i++) {
    const pet = await client.createPet({ name: `ts ${worker} ${i}`, categoryId: 1 });
    console.log(pet.name);
  }
}

await Promise.all([1, 2, 3, 4].map(create));

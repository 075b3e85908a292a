package code

// Statuses has the status of each code, by name.
var Statuses = statuses

package service

// Unknown is unknown, for tests.
var Unknown = unknown

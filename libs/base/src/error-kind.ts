/**
 * Category of a failure. The kinds are the same in code, on the wire and in the exit codes of the
 * command line.
 */
export type ErrorKind =
  | 'invalid' // the input is invalid and stays invalid
  | 'notFound'
  | 'exists'
  | 'denied'
  | 'precondition' // the input is valid, but the current state does not permit the operation
  | 'conflict' // a record changed meanwhile: read again and retry
  | 'exhausted' // out of a bounded resource, such as disk space, ports or a queue
  | 'unavailable' // retry later
  | 'unauthenticated'
  | 'unimplemented'
  | 'deadline' // the time limit has passed
  | 'compacted' // the requested history no longer exists: take a snapshot
  | 'internal';

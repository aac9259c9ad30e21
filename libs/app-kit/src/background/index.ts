export { connectOrStart, startBackgroundProgram } from './connect-or-start.js';
export type { BackgroundProgram, StartedProgram } from './connect-or-start.js';
export { acquireDirectoryLock, findLockHolder } from './directory-lock.js';
export { createFileLog } from './file-log.js';
export { isAlive, readBootId, readStartToken, signalGroup } from './process-identity.js';
export { withSocketPath } from './socket-path.js';

export { resolveSimulatedChanges } from './resolve-changes.js';
export type { ResolveDeps } from './resolve-changes.js';

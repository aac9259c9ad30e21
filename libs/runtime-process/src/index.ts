export { openProcessRuntime } from './process-runtime.js';
export type { ProcessRuntime, ProcessRuntimeOptions } from './process-runtime.js';
export { runSupervisor } from './supervisor/run-supervisor.js';
export type { SupervisorOptions } from './supervisor/run-supervisor.js';

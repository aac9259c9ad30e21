export { openProcessRuntime } from './process-runtime.js';
export type { ProcessRuntime } from './process-runtime.js';
export type { ProcessRuntimeOptions } from './process-runtime-options.js';
export { createSilentSupervisorError, SILENT_AFTER_MS } from './client/supervisor-link.js';
export { runSupervisor } from './supervisor/run-supervisor.js';
export type { SupervisorOptions } from './supervisor/run-supervisor.js';

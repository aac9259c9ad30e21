export { createHostReader } from './host-reader.js';
export type { HostCapacity, HostReader, HostReaderOptions, HostUsage } from './host-reader.js';
export { thisMachine } from './host-machine.js';
export type { DiskUse, HostMachine } from './host-machine.js';

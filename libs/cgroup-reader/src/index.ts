export { createHostReader } from './host-reader.js';
export type { HostCapacity, HostReader, HostReaderOptions, HostUsage } from './host-reader.js';
export { thisMachine } from './host-machine.js';
export type { DiskUse, HostMachine } from './host-machine.js';
export { createContainerReader } from './container-reader.js';
export type {
  ContainerReader,
  ContainerReaderOptions,
  ContainerTarget,
} from './container-reader.js';
export { createProcessReader } from './process-reader.js';
export type { ProcessReader, ProcessReaderOptions } from './process-reader.js';
export { hostFiles } from './file-system.js';
export type { ProcessFiles, StatisticsFiles } from './file-system.js';

export { openCriRuntime } from './cri-runtime.js';
export type { CriRuntime } from './cri-runtime.js';
export type { CriRuntimeOptions, ImageCollection } from './cri-runtime-options.js';
export type { Owner } from './containers/labels.js';
export { probeCriRuntime } from './probe/probe-cri-runtime.js';
export type { CriProbe, CriProbeOptions } from './probe/probe-cri-runtime.js';
export { mountMemory, unmountMemory } from './volumes/memory-mounts.js';
export type { MemoryMountOptions } from './volumes/memory-mounts.js';
export type { Permissions } from './probe/capabilities.js';

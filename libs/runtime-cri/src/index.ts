export { openCriRuntime } from './cri-runtime.js';
export type { CriRuntimeOptions } from './cri-runtime.js';
export type { Owner } from './containers/labels.js';

export { aSpec, aWorkload } from './builders.js';
export { listSpecLeaves } from './spec-leaves.js';
export type { SpecLeaf } from './spec-leaves.js';

export { aSpec, aWorkload } from './builders.js';
export { specLeaves } from './spec-leaves.js';
export type { SpecLeaf } from './spec-leaves.js';

export { simulateCluster } from './cluster-simulation.js';
export { encodeSnapshot, readSnapshot } from './cluster-snapshot.js';
export type { ReadSnapshot } from './cluster-snapshot.js';
export { createRecordSource } from './record-source.js';
export type { RecordSource, RecordSourceOptions } from './record-source.js';
export { redactSpec } from './redaction.js';
export type { SimulationSource, SimulationView } from '../dry-run/simulation-source.js';
export { explainImpossibleLimits } from '../dry-run/dry-run-service.js';

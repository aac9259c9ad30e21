export { FaultyProcess } from './faulty-process.js';
export type { FaultyProcessOptions } from './faulty-process.js';
export { freezeRecords, listDifferences } from './freeze-records.js';

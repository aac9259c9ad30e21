export { freezeRecords, listDifferences } from './freeze-records.js';

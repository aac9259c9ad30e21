export { recorded } from './recorded-group.js';
export type { RecordedGroup } from './recorded-group.js';
export { recordedGroups } from './recorded-groups.js';

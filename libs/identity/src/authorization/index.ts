export type { AccessRule, UserRule } from './access-rule.js';
export { ACCESS_TABLE_SERVICES, getAccessRule } from './access-table.js';
export { checkCall } from './check-call.js';
export type { AccessDecision } from './check-call.js';

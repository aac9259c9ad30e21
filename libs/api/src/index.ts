export * from './gen.js';
export { createAdminClient, createAgentClient, createCoordinatorClient } from './clients.js';
export type { AdminClient, AgentClient, CoordinatorClient } from './clients.js';
export { FIRST_MESSAGE_WITHIN_MS, firstMessage, windowCostOf } from './client-stream.js';
export {
  DEFAULTS,
  capabilitiesOf,
  disconnectTimesOf,
  namespaceOf,
  portNameOf,
  templatePart,
  toTemplate,
  withDefaults,
} from './defaults.js';
export type { DisconnectTimes } from './defaults.js';
export { traceIdOf } from './trace-parent.js';
export { codeName, codeOfKind, createErrorInterceptor, fromConnectError, kindOfCode, toConnectError } from './errors.js';
export { LAST_LINES, toLastLines } from './last-lines.js';
export { matchesLabels, parseLabelSelector } from './label-selector.js';
export type { LabelCondition, LabelSelector } from './label-selector.js';
export { pageOf } from './paging.js';
export type { Page, PagedList } from './paging.js';
export { diffSpecs, updateSpec } from './spec-fields.js';
export type { SpecChange } from './spec-fields.js';
export { checkSameMode, checkScalable } from './mode-rules.js';
export { checkSpec, refuseUnsupported } from './spec-rules.js';
export { portOfProbe } from './probe-rules.js';
export { createValidationInterceptor, validateMessage } from './validation.js';
export { isRolledOut } from './rollout-phase.js';

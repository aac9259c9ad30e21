export * from './gen.js';
export { capabilitiesOf } from './capabilities.js';
export { createAdminClient, createAgentClient, createCoordinatorClient } from './clients.js';
export type { AdminClient, AgentClient, CoordinatorClient } from './clients.js';
export { FIRST_MESSAGE_WITHIN_MS, firstMessage, windowCostOf } from './client-stream.js';
export { DEFAULTS, disconnectTimesOf, namespaceOf, portNameOf, withDefaults } from './defaults.js';
export type { DisconnectTimes } from './defaults.js';
export { traceIdOf } from './trace-parent.js';
export {
  codeName,
  codeOfKind,
  createErrorInterceptor,
  fromConnectError,
  kindOfCode,
  toConnectError,
} from './errors.js';
export { ExecResultJoiner, splitExecResult } from './exec-pieces.js';
export { hostPortsOf } from './host-ports.js';
export type { HostPort } from './host-ports.js';
export { LAST_LINES, toLastLines } from './last-lines.js';
export { encodeLogBatch, linesOfEntry } from './log-batch.js';
export { logCostOf } from './log-window.js';
export type { BatchLine } from './log-batch.js';
export { matchesLabels, parseLabelSelector } from './label-selector.js';
export type { LabelCondition, LabelSelector } from './label-selector.js';
export { pageOf } from './paging.js';
export type { Page, PagedList } from './paging.js';
export { diffSpecs, updateSpec } from './spec-fields.js';
export type { SpecChange } from './spec-fields.js';
export { checkSameMode, checkScalable } from './mode-rules.js';
export { canonicalCapability } from './linux-capabilities.js';
export { parseProfile, parseSelinuxOptions } from './security-texts.js';
export { bothLimitsOf } from './ulimit-rules.js';
export { checkSpec, refuseUnsupported } from './spec-rules.js';
export { portOfProbe } from './probe-rules.js';
export { templatePart, toTemplate } from './template.js';
export { createValidationInterceptor, validateMessage } from './validation.js';
export { isRolledOut } from './rollout-phase.js';

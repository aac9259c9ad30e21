export * from './gen.js';
export { listRequiredCapabilities } from './capabilities.js';
export { createAdminClient, createAgentClient, createCoordinatorClient } from './clients.js';
export type { AdminClient, AgentClient, CoordinatorClient } from './clients.js';
export { FIRST_MESSAGE_TIMEOUT_MS, readFirstMessage, computeWindowCost } from './client-stream.js';
export {
  DEFAULTS,
  resolveDisconnectTimes,
  resolveNamespace,
  resolvePortName,
  withDefaults,
} from './defaults.js';
export type { DisconnectTimes } from './defaults.js';
export { parseTraceId } from './trace-parent.js';
export {
  formatCode,
  toCode,
  createErrorInterceptor,
  fromConnectError,
  toErrorKind,
  toConnectError,
} from './errors.js';
export { ExecResultAssembler, splitExecResult } from './exec-pieces.js';
export { listHostPorts } from './host-ports.js';
export type { ReplicaHostPort } from './host-ports.js';
export { LAST_LINES, toLastLines } from './last-lines.js';
export { encodeLogBatch, decodeLines } from './log-batch.js';
export { computeLogCost } from './log-window.js';
export type { BatchLine } from './log-batch.js';
export { matchesLabels, parseLabelSelector } from './label-selector.js';
export type { LabelCondition, LabelSelector } from './label-selector.js';
export { paginate } from './paging.js';
export type { Page, PagedList } from './paging.js';
export { diffSpecs, updateSpec } from './spec-fields.js';
export type { SpecDifference } from './spec-fields.js';
export { checkSameMode, checkScalable } from './mode-rules.js';
export { normalizeCapability } from './linux-capabilities.js';
export { parseProfile, parseSelinuxOptions } from './security-texts.js';
export { resolveUlimit } from './ulimit-rules.js';
export { checkSpec, checkSupported } from './spec-rules.js';
export { findProbePort } from './probe-rules.js';
export { extractTemplate, toTemplate } from './template.js';
export { createValidationInterceptor, validateMessage } from './validation.js';
export { isRolledOut } from './rollout-phase.js';

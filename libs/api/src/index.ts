export * from './gen.js';
export {
  HOST_PATH_CAPABILITY,
  HOST_PATHS_CAPABILITY,
  listRequiredCapabilities,
} from './spec/capabilities.js';
export {
  requestsIdentity,
  WORKLOAD_IDENTITY_CAPABILITY,
  WORKLOAD_IDENTITY_PATH,
  WORKLOAD_IDENTITY_VOLUME,
} from './spec/workload-identity.js';
export { RENEW_CERTIFICATE_HEADER } from './wire/renew-certificate-header.js';
export {
  createAdminClient,
  createAgentClient,
  createCoordinatorClient,
  createIdentityClient,
  createNetworkClient,
  createNodeNetworkClient,
  createConfigsClient,
  createPolicyClient,
  createSecretsClient,
  createUserClient,
} from './wire/clients.js';
export type {
  AdminClient,
  AgentClient,
  CoordinatorClient,
  IdentityClient,
  NetworkClient,
  NodeNetworkClient,
  ConfigsClient,
  PolicyClient,
  SecretsClient,
  UserClient,
} from './wire/clients.js';
export {
  FIRST_MESSAGE_TIMEOUT_MS,
  readFirstMessage,
  computeWindowCost,
} from './wire/client-stream.js';
export {
  DEFAULTS,
  resolveDisconnectTimes,
  resolveNamespace,
  resolvePortName,
  withDefaults,
} from './spec/defaults.js';
export type { DisconnectTimes } from './spec/defaults.js';
export { parseTraceId } from './wire/trace-parent.js';
export {
  formatCode,
  toCode,
  createErrorInterceptor,
  fromConnectError,
  toErrorKind,
  toConnectError,
} from './wire/errors.js';
export { isRefusedStream } from './wire/refused-stream.js';
export { ERROR_DOMAIN, readErrorDetails, toReasonEnum } from './wire/error-details.js';
export type { ErrorDetails } from './wire/error-details.js';
export { PolicyDeniedError } from './wire/policy-denied-error.js';
export { readLeaderHint, toLeaderMetadata } from './wire/leader-hint.js';
export type { LeaderHint } from './wire/leader-hint.js';
export { fromTunnelError, toTunnelError } from './wire/tunnel-errors.js';
export { ExecResultAssembler, splitExecResult } from './wire/exec-result-parts.js';
export { listHostPorts } from './spec/host-ports.js';
export type { ReplicaHostPort } from './spec/host-ports.js';
export { LAST_LINES, toLastLines } from './spec/last-lines.js';
export { findPreviousConflict } from './spec/previous-logs.js';
export {
  formatNotStarted,
  formatRestartReason,
  getBackoffCause,
  getNotStartedCause,
} from './spec/restart-reason.js';
export { encodeLogBatch, decodeLines } from './wire/log-batch.js';
export { computeLogCost } from './wire/log-cost.js';
export type { BatchLine } from './wire/log-batch.js';
export { matchesLabels, parseLabelSelector } from './list/label-selector.js';
export type { LabelCondition, LabelSelector } from './list/label-selector.js';
export { iterateAfter, iterateBefore, paginate, paginateIndex } from './list/paging.js';
export { MessageWriter } from './wire/message-writer.js';
export { copyMessage } from './wire/copy-message.js';
export { decodeMessage } from './wire/message-decoder.js';
export { mapStream } from './wire/map-stream.js';
export {
  NOT_READY,
  STREAM_END,
  forEachItem,
  toIteratorResult,
  toReadyItems,
} from './wire/ready-items.js';
export type { ReadyItems, Taken } from './wire/ready-items.js';
export { DIRECT_HEAD_BYTES, directSenderKey } from './wire/direct-sender.js';
export { beginLongWaitKey } from './wire/long-wait.js';
export type { DirectSender } from './wire/direct-sender.js';
export {
  createEncodedMessage,
  createWithEncodedField,
  setEncodedFields,
  isBinaryCall,
  skipLength,
} from './wire/encoded-message.js';
export type { Page, PagedList } from './list/paging.js';
export { diffMessage, diffSpecs, updateMessage, updateSpec } from './spec/spec-difference.js';
export type { SpecDifference } from './spec/spec-difference.js';
export {
  SERVICE_DEFAULTS,
  resolveServicePortName,
  withBalancingDefaults,
  withServiceDefaults,
} from './network/service-defaults.js';
export { checkBalancing, checkSameKind, checkService } from './network/service-rules.js';
export {
  ROUTE_DEFAULTS,
  checkRoute,
  findRoutePort,
  normalizePathPrefix,
  withRouteDefaults,
} from './network/route-rules.js';
export { createExposedSpec } from './network/exposed-service.js';
export {
  containsAddress,
  containsNetwork,
  findNetworkProblem,
  formatIpNetwork,
  parseIpAddress,
  parseIpNetwork,
} from './network/ip-network.js';
export type { IpAddress, IpNetwork } from './network/ip-network.js';
export {
  EGRESS_CAPABILITY,
  EVADING_CAPABILITIES,
  findServicePatternProblem,
  formatEgressDestination,
} from './spec/egress-rules.js';
export { checkSameMode, checkScalable } from './spec/mode-rules.js';
export { normalizeCapability } from './spec/linux-capabilities.js';
export { parseProfile, parseSelinuxOptions } from './spec/security-options.js';
export { resolveUlimit } from './spec/ulimit-rules.js';
export { checkSpec, checkSupported } from './spec/spec-rules.js';
export { findProbePort } from './spec/probe-rules.js';
export { extractTemplate, toTemplate } from './spec/template.js';
export { createValidationInterceptor, validateMessage } from './wire/validation.js';
export { isRolledOut } from './spec/rollout-phase.js';
export {
  CONFIGS_DIRECTORY,
  DEFAULT_RELOAD_SIGNAL,
  FILES_CAPABILITY,
  FILES_VARIABLES,
  IMAGE_CREDENTIALS_CAPABILITY,
  RELOAD_SIGNALS,
  SECRETS_DIRECTORY,
} from './spec/files-rules.js';

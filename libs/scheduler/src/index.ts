export { createCluster } from './cluster.js';
export type {
  Cluster,
  ClusterOptions,
  EligibleNode,
  NodeUsage,
  SchedulerFigures,
} from './cluster.js';
export type { Placement } from './placement/placement.js';
export { AVAILABILITY_ORDER, DEFAULT_MAX_REPLICAS } from './input/node.js';
export type { NodeAvailability, NodeConditions, SchedulerNode } from './input/node.js';
export type { SchedulerHostPort } from './input/host-ports.js';
export type {
  NodeTerm,
  PlacementRequest,
  TermMode,
  Spread,
  WorkloadTerm,
} from './input/request.js';
export { DEFAULT_PRIORITY } from './input/reservation.js';
export type {
  HeldReservation,
  ReplicaOnNode,
  Reservation,
  ReservationTemplate,
} from './input/reservation.js';
export type { CustomAmounts } from './input/custom-resources.js';
export { NO_RESOURCES, addResources, subtractResources, toResources } from './input/resources.js';
export type { ResourceAmounts, Resources } from './input/resources.js';
export type { LabelOperator, LabelRequirement, Labels } from './input/labels.js';
export { isTolerated } from './input/taints.js';
export type { Taint, TaintEffect, Toleration } from './input/taints.js';
export { PLACEMENT_FILTERS, describeReasons } from './filters/reasons.js';
export type { Failure, NodeReason, PlacementFilter, PlacementReason } from './filters/reasons.js';
export type { NodeExplanation } from './placement/explain.js';
export { applyFixes, type PlacementFix } from './placement/placement-fix.js';
export {
  MAX_SUGGESTION_TRIALS,
  describeSuggestion,
  type Suggestion,
} from './placement/suggest-change.js';
export type {
  Evictability,
  Preemption,
  PreemptionDecision,
  PreemptOptions,
  VictimCandidate,
} from './preemption/preemption.js';
export { DEFAULT_WEIGHTS, normaliseWeights } from './scoring/score.js';
export type { ScoreTerms, ScoreWeights } from './scoring/score.js';

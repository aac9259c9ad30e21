export { createMembership } from './membership.js';
export type {
  LossCause,
  Membership,
  MembershipOptions,
  NodeLease,
  NodeState,
  RenewalResult,
  Transition,
} from './node-state.js';
export { createReplacementBrake } from './replacement-brake.js';
export type { BrakeOptions, BrakeState, ReplacementBrake } from './replacement-brake.js';
export { createQuarantine } from './quarantine.js';
export type { Quarantine, QuarantineOptions } from './quarantine.js';
export { createReliability } from './reliability.js';
export type { Reliability } from './reliability.js';

import { ErrorReason } from '@cloudless/api';

/** The events that report a problem with a cause that errors of the API have too. */
const ERROR_REASONS: Readonly<Record<string, ErrorReason>> = {
  AgentOfAnotherCluster: ErrorReason.WRONG_CLUSTER,
  CertificateAuthorityExpires: ErrorReason.CERTIFICATE_EXPIRED,
  IdentityFilesLost: ErrorReason.WRONG_STATE,
  ImagePullFailed: ErrorReason.IMAGE_PULL_FAILED,
  NodeBanned: ErrorReason.NODE_BANNED,
  NodeCertificateExpires: ErrorReason.CERTIFICATE_EXPIRED,
  NodeDrainFailed: ErrorReason.DRAIN_FAILED,
  NodeLost: ErrorReason.NODE_LOST,
  PolicyAudit: ErrorReason.POLICY_DENIED,
  PolicyOverridden: ErrorReason.POLICY_DENIED,
  ReplicaFailed: ErrorReason.REPLICA_FAILED,
  ReplicasLost: ErrorReason.NODE_LOST,
  ReplicasUnplaced: ErrorReason.NO_CAPACITY,
  RestoredStateWaits: ErrorReason.STORE_ROLLED_BACK,
  RolloutFailed: ErrorReason.ROLLOUT_FAILED,
  StoreWentBackInTime: ErrorReason.STORE_ROLLED_BACK,
};

/**
 * Returns the error reason of an event.
 * @param reason - `reason` of the event.
 * @returns ERROR_REASON_UNSPECIFIED for an event that reports no problem.
 */
export function toEventErrorReason(reason: string): ErrorReason {
  return Object.hasOwn(ERROR_REASONS, reason)
    ? (ERROR_REASONS[reason] ?? ErrorReason.ERROR_REASON_UNSPECIFIED)
    : ErrorReason.ERROR_REASON_UNSPECIFIED;
}

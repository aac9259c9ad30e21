import { equals } from '@bufbuild/protobuf';
import { durationMs, TimestampSchema } from '@bufbuild/protobuf/wkt';
import {
  Event_Severity as Severity,
  ImagePullStatus_Phase as Phase,
  type ImagePullStatus,
} from '@cloudless/api';
import type { EventInit } from '@cloudless/cluster-state';

/** The fields that all events about one replica share. */
export type EventSubject = Required<
  Pick<EventInit, 'category' | 'namespace' | 'workload' | 'replicaId' | 'nodeId'>
>;

/**
 * Returns the event about a change of the pull status of a replica; undefined when no new phase or
 * pull was reported. A retry of a failed pull has an event at its end, none at its start.
 * @param before - The stored pull status; undefined when there is none.
 * @param after - The reported pull status.
 */
export function createPullEvent(
  before: ImagePullStatus | undefined,
  after: ImagePullStatus | undefined,
  subject: EventSubject,
): EventInit | undefined {
  if (after === undefined || (isSamePull(before, after) && before?.phase === after.phase))
    return undefined;
  const { image } = after;
  switch (after.phase) {
    case Phase.PULLING: {
      if (before?.phase === Phase.FAILED && before.image === image) return undefined;
      return {
        ...subject,
        severity: Severity.INFO,
        reason: 'ImagePulling',
        message: `image ${image} is being pulled`,
      };
    }
    case Phase.PULLED: {
      const message = `image ${image} was pulled in ${formatDuration(after)}${formatSize(after.sizeBytes)}`;
      return { ...subject, severity: Severity.INFO, reason: 'ImagePulled', message };
    }
    case Phase.FAILED: {
      return {
        ...subject,
        severity: Severity.WARNING,
        reason: 'ImagePullFailed',
        message: describeFailure(after),
      };
    }
    default: // A phase of a newer protocol version.
      return undefined;
  }
}

function isSamePull(
  before: ImagePullStatus | undefined,
  { image, startedAt }: ImagePullStatus,
): boolean {
  if (before?.image !== image) return false;
  if (before.startedAt === undefined || startedAt === undefined)
    return before.startedAt === startedAt;
  return equals(TimestampSchema, before.startedAt, startedAt);
}

/** Describes a failed pull. The reason of a container runtime may begin with the image already. */
function describeFailure({ image, reason }: ImagePullStatus): string {
  if (reason.startsWith(`image ${image} `)) return reason;
  return `image ${image} could not be pulled: ${reason || 'no reason was given'}`;
}

function formatDuration({ took }: ImagePullStatus): string {
  const ms = took === undefined ? 0 : durationMs(took);
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

function formatSize(sizeBytes: bigint): string {
  return sizeBytes === 0n ? '' : ` (${(Number(sizeBytes) / 2 ** 20).toFixed(1)} MiB)`;
}

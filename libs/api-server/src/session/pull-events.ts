import { equals } from '@bufbuild/protobuf';
import { durationMs, TimestampSchema } from '@bufbuild/protobuf/wkt';
import {
  Event_Severity as Severity,
  ImagePullStatus_Phase as Phase,
  type ImagePullStatus,
} from '@cloudless/api';
import type { EventInit } from '@cloudless/cluster-state';

export type EventSubject = Pick<
  EventInit,
  'category' | 'namespace' | 'workload' | 'replicaId' | 'nodeId'
>;

/**
 * Returns the event about a change of the pull status of an image; undefined when nothing changed.
 * A retry of a failed pull emits no event at its start, only at its end.
 */
export function createPullEvent(
  before: ImagePullStatus | undefined,
  after: ImagePullStatus | undefined,
  about: EventSubject,
): EventInit | undefined {
  if (after === undefined || (isSamePull(before, after) && before?.phase === after.phase))
    return undefined;
  const { image } = after;
  switch (after.phase) {
    case Phase.PULLING: {
      if (before?.phase === Phase.FAILED && before.image === image) return undefined;
      return {
        ...about,
        severity: Severity.INFO,
        reason: 'ImagePulling',
        message: `image ${image} is being pulled`,
      };
    }
    case Phase.PULLED: {
      const message = `image ${image} was pulled in ${formatDuration(after)}${formatSize(after.sizeBytes)}`;
      return { ...about, severity: Severity.INFO, reason: 'ImagePulled', message };
    }
    case Phase.FAILED: {
      return {
        ...about,
        severity: Severity.WARNING,
        reason: 'ImagePullFailed',
        message: describeFailure(after),
      };
    }
    default: // a phase of a newer protocol version
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

/** The reason of a container runtime may begin with the image already. */
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

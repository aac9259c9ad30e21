import { isPathWithin, type Violation } from '@cloudless/base';
import type { Volume, WorkloadSpec } from '../gen.js';
import { findPathProblem } from './absolute-path.js';
import {
  requestsIdentity,
  WORKLOAD_IDENTITY_PATH,
  WORKLOAD_IDENTITY_VOLUME,
} from './workload-identity.js';

/** Paths that the container runtime mounts itself, so no volume can be mounted there. */
const RESERVED_PATHS = ['/', '/dev'];
/** Paths at or below which no volume can be mounted, so that no file of the kernel is hidden. */
const RESERVED_TREES = ['/proc', '/sys'];

/** Directory of POSIX shared memory. */
const SHARED_MEMORY = '/dev/shm';

/**
 * Validates volumes beyond the rules of the proto. The paths of the violations start with `spec`.
 */
export function* validateVolumes(spec: WorkloadSpec): Generator<Violation> {
  const { volumes, shmSizeBytes } = spec;
  const names = new Set<string>();
  const paths = new Set<string>();
  for (const [index, volume] of volumes.entries()) {
    const field = `spec.volumes[${index}]`;
    if (names.has(volume.name))
      yield { field: `${field}.name`, message: `"${volume.name}" is used twice` };
    else if (requestsIdentity(spec) && volume.name === WORKLOAD_IDENTITY_VOLUME)
      yield {
        field: `${field}.name`,
        message: `"${volume.name}" is used by spec.identity; choose another name`,
      };
    names.add(volume.name);
    const problem =
      findMountPathProblem(volume.mountPath) ??
      (paths.has(volume.mountPath) ? 'is used twice' : undefined);
    if (problem === undefined && volume.mountPath === SHARED_MEMORY && shmSizeBytes > 0n) {
      yield {
        field: `${field}.mount_path`,
        message: `"${SHARED_MEMORY}" is created by shm_size_bytes; remove one of them`,
      };
    }
    if (
      problem === undefined &&
      requestsIdentity(spec) &&
      isPathWithin(volume.mountPath, WORKLOAD_IDENTITY_PATH)
    ) {
      yield {
        field: `${field}.mount_path`,
        message: `${JSON.stringify(volume.mountPath)} is used by spec.identity; choose another directory`,
      };
    }
    if (problem !== undefined)
      yield {
        field: `${field}.mount_path`,
        message: `${JSON.stringify(volume.mountPath)} ${problem}`,
      };
    paths.add(volume.mountPath);
    yield* validateSource(field, volume);
  }
}

/** Returns why no volume can be mounted at a path; undefined when a volume can. */
function findMountPathProblem(path: string): string | undefined {
  const problem = findPathProblem(path);
  if (problem !== undefined) return problem;
  const isReserved =
    RESERVED_PATHS.includes(path) || RESERVED_TREES.some((tree) => isPathWithin(path, tree));
  if (isReserved) return 'is reserved for the container runtime; choose another directory';
  return undefined;
}

function* validateSource(field: string, { source }: Volume): Generator<Violation> {
  if (source.case === undefined) {
    yield { field, message: 'one of empty_dir, host_path and named is required' };
    return;
  }
  if (source.case !== 'hostPath') return;
  const { path } = source.value;
  const problem = findPathProblem(path);
  if (problem !== undefined)
    yield { field: `${field}.host_path.path`, message: `${JSON.stringify(path)} ${problem}` };
}

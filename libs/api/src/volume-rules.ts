import type { Violation } from '@cloudless/base';
import { absolutePathProblem, isWithin } from './absolute-path.js';
import type { Volume, WorkloadSpec } from './gen.js';

/** Mounted by the container runtime itself, so no volume can be mounted there. */
const TAKEN = ['/', '/dev'];
/** No volume can be mounted at or below these paths: files of the kernel must not be hidden. */
const TAKEN_WITH_ALL_BELOW = ['/proc', '/sys'];

/** Directory of POSIX shared memory. */
const SHARED_MEMORY = '/dev/shm';

/** Validates volumes beyond the rules of the proto. Paths start with `spec`. */
export function* volumeRules({ volumes, shmSizeBytes }: WorkloadSpec): Generator<Violation> {
  const names = new Set<string>();
  const paths = new Set<string>();
  for (const [index, volume] of volumes.entries()) {
    const field = `spec.volumes[${index}]`;
    if (names.has(volume.name))
      yield { field: `${field}.name`, message: `"${volume.name}" is used twice` };
    names.add(volume.name);
    const problem =
      mountPathProblem(volume.mountPath) ??
      (paths.has(volume.mountPath) ? 'is used twice' : undefined);
    if (problem === undefined && volume.mountPath === SHARED_MEMORY && shmSizeBytes > 0n) {
      yield {
        field: `${field}.mount_path`,
        message: `"${SHARED_MEMORY}" is created by shm_size_bytes; remove one of them`,
      };
    }
    if (problem !== undefined)
      yield {
        field: `${field}.mount_path`,
        message: `${JSON.stringify(volume.mountPath)} ${problem}`,
      };
    paths.add(volume.mountPath);
    yield* sourceRules(field, volume);
  }
}

function mountPathProblem(path: string): string | undefined {
  const problem = absolutePathProblem(path);
  if (problem !== undefined) return problem;
  const isTaken =
    TAKEN.includes(path) || TAKEN_WITH_ALL_BELOW.some((taken) => isWithin(path, taken));
  if (isTaken) return 'is reserved for the container runtime; choose another directory';
  return undefined;
}

function* sourceRules(field: string, { source }: Volume): Generator<Violation> {
  if (source.case === undefined) {
    yield { field, message: 'one of empty_dir, host_path and named is required' };
    return;
  }
  if (source.case !== 'hostPath') return;
  const { path } = source.value;
  const problem = absolutePathProblem(path);
  if (problem !== undefined)
    yield { field: `${field}.host_path.path`, message: `${JSON.stringify(path)} ${problem}` };
}

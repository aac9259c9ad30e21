import type { Violation } from '@cloudless/base';
import { absolutePathProblem, isWithin } from './absolute-path.js';
import type { Volume, WorkloadSpec } from './gen.js';

/** Mounted by the container runtime itself, so nothing else can stand there. */
const TAKEN = ['/', '/dev'];
/** Nor below these: the kernel's own files must not be covered. */
const TAKEN_WITH_ALL_BELOW = ['/proc', '/sys'];

/** Where the files are that processes share as memory. */
const SHARED_MEMORY = '/dev/shm';

/** Rules of volumes that their proto cannot say. Paths are below `spec`. */
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
        message: `"${SHARED_MEMORY}" is made by shm_size_bytes; leave out one of them`,
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
  if (isTaken) return 'belongs to the container runtime; choose another directory';
  return undefined;
}

function* sourceRules(field: string, { source }: Volume): Generator<Violation> {
  if (source.case === undefined) {
    yield { field, message: 'needs a source: one of empty_dir, host_path and named' };
    return;
  }
  if (source.case !== 'hostPath') return;
  const { path } = source.value;
  const problem = absolutePathProblem(path);
  if (problem !== undefined)
    yield { field: `${field}.host_path.path`, message: `${JSON.stringify(path)} ${problem}` };
}

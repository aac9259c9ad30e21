import type { Violation } from '@cloudless/base';
import type { WorkloadSpec } from '../gen.js';
import { findPathProblem } from './absolute-path.js';

/**
 * Validates the paths of devices, which the rules of the proto cannot express. The paths of the
 * violations start with `spec`.
 */
export function* validateDevices({ devices }: WorkloadSpec): Generator<Violation> {
  const containerPaths = new Set<string>();
  for (const [index, { hostPath, containerPath }] of devices.entries()) {
    for (const [name, path] of [
      ['host_path', hostPath],
      ['container_path', containerPath],
    ] as const) {
      const problem = path === '' ? undefined : findPathProblem(path);
      if (problem !== undefined)
        yield {
          field: `spec.devices[${index}].${name}`,
          message: `${JSON.stringify(path)} ${problem}`,
        };
    }
    const effectivePath = containerPath === '' ? hostPath : containerPath;
    if (containerPaths.has(effectivePath))
      yield {
        field: `spec.devices[${index}].container_path`,
        message: `"${effectivePath}" is used twice`,
      };
    containerPaths.add(effectivePath);
  }
}

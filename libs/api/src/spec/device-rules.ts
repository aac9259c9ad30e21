import type { Violation } from '@cloudless/base';
import type { WorkloadSpec } from '../gen.js';
import { findPathProblem } from './absolute-path.js';

/** Validates devices beyond the rules of the proto. Paths start with `spec`. */
export function* validateDevices({ devices }: WorkloadSpec): Generator<Violation> {
  const places = new Set<string>();
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
    const place = containerPath === '' ? hostPath : containerPath;
    if (places.has(place))
      yield { field: `spec.devices[${index}].container_path`, message: `"${place}" is used twice` };
    places.add(place);
  }
}

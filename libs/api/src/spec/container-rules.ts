import type { Violation } from '@cloudless/base';
import {
  ImagePullSchema,
  NetworkSchema,
  SecurityContextSchema,
  type WorkloadSpec,
} from '../gen.js';
import { validateDevices } from './device-rules.js';
import { isPresent } from './is-present.js';
import { validateNetwork } from './network-rules.js';
import { validatePlatform } from './platform-rules.js';
import { validateSecurity } from './security-rules.js';
import { validateSysctls } from './sysctl-rules.js';
import { validateUlimits } from './ulimit-rules.js';
import { validateVolumes } from './volume-rules.js';
import { requestsIdentity } from './workload-identity.js';

const NEEDS_CONTAINER = 'needs a container: set image';

/**
 * Validates the fields that only containers have. The paths of the violations start with `spec`.
 */
export function* validateContainer(spec: WorkloadSpec): Generator<Violation> {
  if (spec.image === '') {
    for (const field of listContainerFields(spec)) yield { field, message: NEEDS_CONTAINER };
    return;
  }
  yield* validateSecurity(spec);
  yield* validateVolumes(spec);
  yield* validateNetwork(spec);
  yield* validateSysctls(spec);
  yield* validateUlimits(spec);
  yield* validateDevices(spec);
  yield* validatePlatform(spec);
}

/**
 * Yields the paths of the fields that are set and that a process cannot have. Resource limits are
 * not included: the scheduler decides by the capabilities of the nodes.
 */
function* listContainerFields(spec: WorkloadSpec): Generator<string> {
  if (isPresent(SecurityContextSchema, spec.security)) yield 'spec.security';
  if (spec.volumes.length > 0) yield 'spec.volumes';
  if (isPresent(NetworkSchema, spec.network)) yield 'spec.network';
  if (isPresent(ImagePullSchema, spec.imagePull)) yield 'spec.image_pull';
  if (spec.init !== undefined) yield 'spec.init';
  if (spec.shmSizeBytes !== 0n) yield 'spec.shm_size_bytes';
  if (spec.ulimits.length > 0) yield 'spec.ulimits';
  if (Object.keys(spec.sysctls).length > 0) yield 'spec.sysctls';
  if (spec.devices.length > 0) yield 'spec.devices';
  if (requestsIdentity(spec)) yield 'spec.identity';
  for (const [index, port] of spec.ports.entries())
    if (port.hostPort !== 0) yield `spec.ports[${index}].host_port`;
}

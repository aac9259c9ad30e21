import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { WorkloadSchema, WorkloadSpecSchema, type Workload, type WorkloadSpec } from '../gen.js';

/** Returns a valid spec of a process, with the given fields replaced. */
export function aSpec(changes: MessageInitShape<typeof WorkloadSpecSchema> = {}): WorkloadSpec {
  return Object.assign(
    create(WorkloadSpecSchema, { command: ['serve'] }),
    pickFields(create(WorkloadSpecSchema, changes), changes),
  );
}

/** Returns the workload `default/web` with a valid spec, with the given fields replaced. */
export function aWorkload(changes: MessageInitShape<typeof WorkloadSchema> = {}): Workload {
  const base = {
    namespace: 'default',
    name: 'web',
    uid: '00000000000000a1',
    spec: aSpec(),
    status: {},
    generation: 1n,
  };
  return Object.assign(
    create(WorkloadSchema, base),
    pickFields(create(WorkloadSchema, changes), changes),
  );
}

/** Returns only the fields of a message that are keys of `changes`. */
function pickFields<Shape extends object>(message: Shape, changes: object): Partial<Shape> {
  return Object.fromEntries(
    Object.entries(message).filter(([key]) => Object.hasOwn(changes, key)),
  ) as Partial<Shape>;
}

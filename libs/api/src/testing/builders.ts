import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { WorkloadSchema, WorkloadSpecSchema, type Workload, type WorkloadSpec } from '../gen.js';

/** A valid spec: a command for the process runtime. Override the fields that a test is about. */
export function aSpec(changes: MessageInitShape<typeof WorkloadSpecSchema> = {}): WorkloadSpec {
  return Object.assign(
    create(WorkloadSpecSchema, { command: ['serve'] }),
    pickNamed(create(WorkloadSpecSchema, changes), changes),
  );
}

/** A workload as a new cluster returns it. Override the fields that a test is about. */
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
    pickNamed(create(WorkloadSchema, changes), changes),
  );
}

/** Returns the fields of a message that `changes` names. */
function pickNamed<Made extends object>(made: Made, changes: object): Partial<Made> {
  return Object.fromEntries(
    Object.entries(made).filter(([key]) => Object.hasOwn(changes, key)),
  ) as Partial<Made>;
}

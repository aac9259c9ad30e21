import { create } from '@bufbuild/protobuf';
import {
  CoordinatorMessageSchema,
  KnownCoordinatorSchema,
  type CoordinatorMessage,
  type KnownCoordinator,
} from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import type { CoordinatorRecord } from '@cloudless/api/store';
import type { ClusterView, RecordChange } from '@cloudless/cluster-state';

/** Returns the coordinators that run and that others can reach, by id. */
export function listKnownCoordinators(view: Pick<ClusterView, 'coordinators'>): KnownCoordinator[] {
  return [...view.coordinators()]
    .map(({ value: { id, address } }) => create(KnownCoordinatorSchema, { id, address }))
    .filter(({ address }) => address !== '')
    .sort((left, right) => (left.id < right.id ? -1 : 1));
}

/** Returns the coordinators that run with their versions and starts, for operators, by id. */
export function describeCoordinators(view: Pick<ClusterView, 'coordinators'>): KnownCoordinator[] {
  const records = new Map([...view.coordinators()].map(({ value }) => [value.id, value]));
  return listKnownCoordinators(view).map((known) => {
    const { version = '', startedAt } = records.get(known.id) ?? {};
    return create(KnownCoordinatorSchema, { ...known, version, ...definedFields({ startedAt }) });
  });
}

/** Returns the message that names the coordinators to an agent; undefined when there are none. */
export function createCoordinatorsMessage(
  view: Pick<ClusterView, 'coordinators'>,
): CoordinatorMessage | undefined {
  const coordinators = listKnownCoordinators(view);
  if (coordinators.length === 0) return undefined;
  return create(CoordinatorMessageSchema, {
    message: { case: 'coordinators', value: { coordinators } },
  });
}

/**
 * Returns true when agents need to learn of a coordinator: it has joined or moved. A
 * coordinator that ends may only restart.
 */
export function announcesCoordinator({ kind, before, after }: RecordChange): boolean {
  if (kind !== 'coordinator' || after === undefined) return false;
  return (
    (before as CoordinatorRecord | undefined)?.address !== (after as CoordinatorRecord).address
  );
}

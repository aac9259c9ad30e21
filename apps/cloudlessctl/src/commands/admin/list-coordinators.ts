import { create } from '@bufbuild/protobuf';
import { KnownCoordinatorSchema } from '@cloudless/api';
import type { ServerInfo } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { firstServer } from '../../config/server-list.js';
import { formatCoordinatorTable } from '../../views/coordinator-view.js';
import type { ListedCoordinator } from '../../views/coordinator-view.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';

const COORDINATOR_KIND: ObjectKind<ListedCoordinator> = {
  plural: 'coordinators',
  fields: [...KnownCoordinatorSchema.fields.map(({ jsonName }) => jsonName), 'role', 'epoch'],
  toJson: ({ coordinator, role, epoch }) => ({
    ...(toMessageJson(KnownCoordinatorSchema, coordinator) as object),
    role,
    ...(epoch === undefined ? {} : { epoch: String(epoch) }),
  }),
  formatTable: (coordinators, { settings, style, nowMs }) =>
    formatCoordinatorTable(coordinators, nowMs, style, settings.output === 'wide'),
};

/**
 * Prints the coordinators of the cluster, with the leader as the coordinator that answers knows it.
 */
export async function listCoordinators(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const info = await session.client.getServerInfo({}, session.getCallOptions());
  const listed = toListed(info, firstServer(session.settings.server));
  await printObjects(invocation, COORDINATOR_KIND, listed, 'no coordinators');
  if (info.leader === undefined)
    await session.printNotice(
      'no coordinator leads at the moment: changes wait for a leader; see /health of each coordinator',
    );
}

/** @param server - The address of the coordinator that has answered. */
function toListed(info: ServerInfo, server: string): readonly ListedCoordinator[] {
  const { coordinatorId: id, version, coordinators, leader } = info;
  // A cluster with one coordinator has no list, and its coordinator leads.
  if (coordinators.length === 0)
    return [
      {
        coordinator: create(KnownCoordinatorSchema, { id, version, address: server }),
        role: 'leader',
        epoch: info.epoch,
      },
    ];
  return coordinators.map((coordinator) =>
    coordinator.id === leader?.coordinatorId
      ? { coordinator, role: 'leader', epoch: leader.epoch }
      : { coordinator, role: 'follower' },
  );
}

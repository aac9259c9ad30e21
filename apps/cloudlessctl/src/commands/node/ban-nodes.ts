import { NodeBanSchema } from '@cloudless/api';
import type { NodeBan } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatBanTable } from '../../views/token-view.js';
import { changeEach } from '../change-each.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { getTextOption } from '../options.js';
import { listAllPages } from '../page.js';
import { getNodeIds } from './change-node.js';

const BAN_KIND: ObjectKind<NodeBan> = {
  plural: 'bans',
  fields: NodeBanSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (ban) => toMessageJson(NodeBanSchema, ban),
  formatTable: (bans, { nowMs, style }) => formatBanTable(bans, nowMs, style),
};

/** Bans nodes: their certificates are refused from now on. */
export async function banNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const reason = getTextOption(invocation, 'reason') ?? '';
  const nodeIds = getNodeIds(invocation);
  const banned = await changeEach(session, nodeIds, {
    describe: (nodeId) => `node ${nodeId}`,
    change: async (nodeId) => {
      const ban = await session.identities.banNode({ nodeId, reason }, session.getCallOptions());
      await session.printStatus(
        `node ${nodeId}: banned; its connections end within 5s, and its replicas are replaced when its lease ends`,
      );
      return ban;
    },
  });
  if (session.isStructured) {
    const bans = banned.results.map((ban) => toMessageJson(NodeBanSchema, ban));
    const [only] = bans;
    await session.printValue(nodeIds.length === 1 && only !== undefined ? only : { bans });
  }
  banned.throwFailure();
}

export async function unbanNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const unbanned = await changeEach(session, getNodeIds(invocation), {
    describe: (nodeId) => `node ${nodeId}`,
    change: async (nodeId) => {
      const { removed } = await session.identities.unbanNode({ nodeId }, session.getCallOptions());
      await session.printStatus(
        removed
          ? `node ${nodeId}: ban removed; the machine must join again: cloudlessctl node join-command`
          : `node ${nodeId}: was not banned`,
      );
    },
  });
  unbanned.throwFailure();
}

export async function listBans(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const bans = await listAllPages(
    (page) => session.identities.listNodeBans(page, session.getCallOptions()),
    (page) => page.bans,
  );
  await printObjects(invocation, BAN_KIND, bans, 'no banned nodes');
}

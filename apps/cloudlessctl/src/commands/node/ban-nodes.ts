import { Code, ConnectError } from '@connectrpc/connect';
import { NodeBanSchema } from '@cloudless/api';
import type { NodeBan } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { formatBanTable } from '../../views/token-view.js';
import { changeEach } from '../change-each.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { getTextOption, hasFlag } from '../options.js';
import { listAllPages } from '../page.js';
import { getNodeIds } from './change-node.js';
import { findNode } from './find-node.js';

const BAN_KIND: ObjectKind<NodeBan> = {
  plural: 'bans',
  fields: NodeBanSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (ban) => toMessageJson(NodeBanSchema, ban),
  formatTable: (bans, { nowMs, style }) => formatBanTable(bans, nowMs, style),
};

/** A ban refuses a node, not a machine, so a token that the machine has kept is still good. */
const TOKEN_HINT =
  'the machine may join again under another name while its join token is valid; revoke the join token it knows: cloudlessctl token list, cloudlessctl token revoke ID';

/**
 * Bans nodes: their certificates are refused from now on.
 * @throws {@link CliFailure} with exit code 3 for a node that the cluster does not have, unless
 *   `--removed` says so.
 */
export async function banNodes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const reason = getTextOption(invocation, 'reason') ?? '';
  const nodeIds = getNodeIds(invocation);
  const isRemoved = hasFlag(invocation, 'removed');
  const banned = await changeEach(session, nodeIds, {
    describe: (nodeId) => `node ${nodeId}`,
    change: async (nodeId) => {
      if (!isRemoved) await requireNode(session, nodeId);
      const ban = await session.identities.banNode({ nodeId, reason }, session.getCallOptions());
      await session.printStatus(
        `node ${nodeId}: banned; its connections end within 5s, and its replicas are replaced when its lease ends`,
      );
      return ban;
    },
  });
  if (!session.isStructured && banned.results.length > 0) await session.printNotice(TOKEN_HINT);
  if (session.isStructured) {
    const bans = banned.results.map((ban) => toMessageJson(NodeBanSchema, ban));
    const [only] = bans;
    await session.printValue(nodeIds.length === 1 && only !== undefined ? only : { bans });
  }
  banned.throwFailure();
}

/** A ban of a name with a typing error would succeed, and the node would stay. */
async function requireNode(session: CliSession, nodeId: string): Promise<void> {
  try {
    await findNode(session, nodeId);
  } catch (reason) {
    const text = describeAbsence(reason);
    if (text === undefined) throw reason;
    throw new CliFailure(
      ExitCode.notFound,
      `${text}${text.endsWith('?') ? '' : '.'} This name was not banned; to ban a node that was removed from the cluster already, give --removed`,
      { cause: reason },
    );
  }
}

/** Returns the message of an error that says that a node does not exist. */
function describeAbsence(reason: unknown): string | undefined {
  if (reason instanceof CliFailure && reason.exitCode === ExitCode.notFound) return reason.message;
  if (reason instanceof ConnectError && reason.code === Code.NotFound)
    return `${reason.rawMessage} (NOT_FOUND)`;
  return undefined;
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

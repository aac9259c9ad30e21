import { Code, ConnectError } from '@connectrpc/connect';
import type { Node } from '@cloudless/api';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { suggestSimilar } from '../../suggest.js';

/** Nodes that are searched for a similar id: one page of a list. */
const SEARCHED_NODES = 1000;

/**
 * Returns a node.
 * @throws {@link CliFailure} with exit code 3 when the node does not exist; the message names a
 *   similar node, if there is one.
 */
export async function findNode(session: CliSession, nodeId: string): Promise<Node> {
  try {
    return await session.client.getNode({ nodeId }, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
    const nodes = await session.client
      .listNodes({ pageSize: SEARCHED_NODES }, session.getCallOptions())
      .then((page) => page.nodes)
      .catch(() => []); // the first error is the one to report
    const hint = suggestSimilar(
      nodeId,
      nodes.map(({ id }) => id),
    );
    if (hint === '') throw reason;
    throw new CliFailure(ExitCode.notFound, `${reason.rawMessage}${hint}`, { cause: reason });
  }
}

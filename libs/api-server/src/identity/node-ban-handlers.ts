import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ListNodeBansResponseSchema,
  NodeBanSchema,
  UnbanNodeResponseSchema,
  paginate,
  type BanNodeRequest,
  type ListNodeBansRequest,
  type ListNodeBansResponse,
  type NodeBan,
  type UnbanNodeRequest,
  type UnbanNodeResponse,
} from '@cloudless/api';
import { NodeBanRecordSchema, NodeRecordSchema } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { AuditEntry } from '../audit/audit-log.js';
import type { MutationDeps } from '../mutation/idempotent-mutation.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';

/** Bans that a cluster keeps. Each is a record in memory. */
const MAX_BANS = 10_000;

/** Handlers of the calls of IdentityService about banned nodes. */
export class NodeBanHandlers {
  constructor(private readonly deps: MutationDeps) {}

  /**
   * Bans a node: its certificates end with the commit, and its connections with them. A repeated
   * call changes nothing.
   */
  banNode(request: BanNodeRequest, entry: AuditEntry): Promise<NodeBan> {
    const { nodeId, reason } = request;
    const { state, clock } = this.deps;
    return this.change(nodeId, async () => {
      const view = state.view();
      const existing = view.nodeBan(nodeId)?.value.ban;
      if (existing !== undefined) return existing;
      if ([...view.nodeBans()].length >= MAX_BANS) {
        throw new CloudlessError(
          'exhausted',
          `the cluster has ${MAX_BANS} bans; remove some with "cloudlessctl node unban", or remove nodes instead`,
        );
      }
      const ban = create(NodeBanSchema, {
        nodeId,
        bannedAt: timestampFromMs(clock.wallTime()),
        bannedBy: entry.caller.principal.name,
        reason,
      });
      const transaction = state
        .transaction()
        .require('ban', nodeId, 'absent')
        .put('ban', nodeId, create(NodeBanRecordSchema, { ban }))
        .event({
          severity: Severity.WARNING,
          category: Category.MEMBERSHIP,
          reason: 'NodeBanned',
          message: `node ${nodeId} was banned${reason === '' ? '' : `: ${reason}`}; its certificates are refused`,
          nodeId,
        });
      const node = view.node(nodeId);
      if (node?.value.identity !== undefined) {
        // After an unban the machine must join again: none of its certificates is valid any more.
        const record = clone(NodeRecordSchema, node.value);
        delete record.identity;
        transaction.require('node', nodeId, node).put('node', nodeId, record);
      }
      // Also while the state is restored: a ban must never wait.
      await entry.commit(transaction, 'commitObserved');
      return ban;
    });
  }

  unbanNode({ nodeId }: UnbanNodeRequest, entry: AuditEntry): Promise<UnbanNodeResponse> {
    const { state } = this.deps;
    return this.change(nodeId, async () => {
      const ban = state.view().nodeBan(nodeId);
      if (ban === undefined) return create(UnbanNodeResponseSchema, { removed: false });
      await entry.commit(
        state
          .transaction()
          .require('ban', nodeId, ban)
          .delete('ban', nodeId)
          .event({
            severity: Severity.INFO,
            category: Category.MEMBERSHIP,
            reason: 'NodeUnbanned',
            message: `the ban of node ${nodeId} was removed; its machine must join again`,
            nodeId,
          }),
      );
      return create(UnbanNodeResponseSchema, { removed: true });
    });
  }

  listNodeBans(request: ListNodeBansRequest): ListNodeBansResponse {
    const bans = [...this.deps.state.view().nodeBans()]
      .flatMap(({ value }) => value.ban ?? [])
      .sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    const { items, nextPageToken } = paginate(bans, ({ nodeId }) => nodeId, request, {
      filter: ['node bans'],
    });
    return create(ListNodeBansResponseSchema, { bans: [...items], nextPageToken });
  }

  private change<Result>(nodeId: string, work: () => Promise<Result>): Promise<Result> {
    const subject = `node "${nodeId}"`;
    return this.deps.mutex.run(subject, () => retryOnConflict({ ...this.deps, subject }, work));
  }
}

import { clone } from '@bufbuild/protobuf';
import { NodeRecordSchema } from '@cloudless/api/store';
import { errorKindOf, logFailure } from '@cloudless/base';
import type { Transaction } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/** Uses that are written in one transaction. Few, because one changed record refuses all of them. */
const MAX_USES_PER_COMMIT = 20;
/** Pause after a failed write, before the next one. */
const RETRY_MS = 1_000;

/**
 * Ends the previous certificate of a node once the current one was used. From then on a stolen copy
 * of the older key is worthless. Uses are collected while a write runs, so that thousands of agents
 * that reconnect at once cause few writes.
 */
export class NodeCertificateUseRecorder {
  /** Serial numbers of used certificates, by node id. */
  private readonly uses = new Map<string, string>();
  private writing: Promise<void> | undefined;
  private isClosed = false;

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>) {}

  /**
   * Records that a node has proved the key of a certificate in a TLS handshake. Returns at once.
   * @param serial - Serial number of the certificate.
   */
  record(nodeId: string, serial: string): void {
    if (this.isClosed || !this.endsPrevious(nodeId, serial)) return;
    this.uses.set(nodeId, serial);
    this.writing ??= this.writeAll();
  }

  /** Writes what was recorded. Later uses are ignored. */
  async close(): Promise<void> {
    this.isClosed = true;
    await this.writing;
  }

  private endsPrevious(nodeId: string, serial: string): boolean {
    const identity = this.deps.state.view().node(nodeId)?.value.identity;
    return identity?.previous !== undefined && identity.current?.serial === serial;
  }

  private async writeAll(): Promise<void> {
    const { state, log, clock } = this.deps;
    while (this.uses.size > 0) {
      // One turn of the event loop collects the uses of connections that arrive together.
      await Promise.resolve();
      const batch = [...this.uses].slice(0, MAX_USES_PER_COMMIT);
      const transaction = state.transaction();
      for (const [nodeId, serial] of batch)
        if (this.endsPrevious(nodeId, serial)) this.putUse(transaction, nodeId);
      try {
        if (transaction.size > 0) await state.commitObserved(transaction);
        this.removeUses(batch);
      } catch (reason) {
        if (errorKindOf(reason) === 'conflict') continue;
        logFailure(log, 'use of certificates not recorded', reason);
        // The previous certificates stay valid until they expire or the next use.
        this.removeUses(batch);
        if (!this.isClosed) await new Promise<void>((resolve) => clock.setTimer(RETRY_MS, resolve));
      }
    }
    this.writing = undefined;
  }

  /** Keeps a use that was recorded again, with another certificate, while the batch was written. */
  private removeUses(batch: readonly (readonly [nodeId: string, serial: string])[]): void {
    for (const [nodeId, serial] of batch)
      if (this.uses.get(nodeId) === serial) this.uses.delete(nodeId);
  }

  private putUse(transaction: Transaction, nodeId: string): void {
    const node = this.deps.state.view().node(nodeId);
    if (node?.value.identity === undefined) return;
    const record = clone(NodeRecordSchema, node.value);
    delete record.identity?.previous;
    transaction.require('node', nodeId, node).put('node', nodeId, record);
  }
}

import { clone } from '@bufbuild/protobuf';
import { CredentialRecordSchema, NodeRecordSchema } from '@cloudless/api/store';
import { errorKindOf, logFailure } from '@cloudless/base';
import type { Transaction } from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';

/** A certificate that a peer has used in a TLS handshake. */
interface CertificateUse {
  readonly kind: 'node' | 'user';
  /** Id of the node, or of the credential of the user. */
  readonly id: string;
  readonly serial: string;
}

/** Uses that are written in one transaction. Few, because one changed record refuses all of them. */
const MAX_USES_PER_COMMIT = 20;
/** Pause after a failed write, before the next one. */
const RETRY_MS = 1_000;

/**
 * Ends the previous certificate of a node or user once the current one was used. From then on a
 * stolen copy of the older key is worthless. Uses are collected while a write runs, so that
 * thousands of agents that reconnect at once cause few writes.
 */
export class CredentialUseRecorder {
  private readonly uses = new Map<string, CertificateUse>();
  private writing: Promise<void> | undefined;
  private isClosed = false;

  constructor(private readonly deps: Pick<ApiServerDeps, 'state' | 'clock' | 'log'>) {}

  /** Records that a TLS handshake has proved the key of a certificate. Returns at once. */
  record(kind: 'node' | 'user', id: string, serial: string): void {
    const use = { kind, id, serial };
    if (this.isClosed || !this.endsPrevious(use)) return;
    this.uses.set(`${kind} ${id}`, use);
    this.writing ??= this.writeAll();
  }

  /** Writes what was recorded. Later uses are ignored. */
  async close(): Promise<void> {
    this.isClosed = true;
    await this.writing;
  }

  private endsPrevious({ kind, id, serial }: CertificateUse): boolean {
    const view = this.deps.state.view();
    const record = kind === 'node' ? view.node(id)?.value.identity : view.credential(id)?.value;
    return record?.previous !== undefined && record.current?.serial === serial;
  }

  private async writeAll(): Promise<void> {
    const { state, log, clock } = this.deps;
    while (this.uses.size > 0) {
      // One turn of the event loop collects the uses of connections that arrive together.
      await Promise.resolve();
      const batch = [...this.uses].slice(0, MAX_USES_PER_COMMIT);
      const transaction = state.transaction();
      for (const [, use] of batch) if (this.endsPrevious(use)) this.putUse(transaction, use);
      try {
        if (transaction.size > 0) await state.commitObserved(transaction);
        for (const [key, use] of batch) if (this.uses.get(key) === use) this.uses.delete(key);
      } catch (reason) {
        if (errorKindOf(reason) === 'conflict') continue;
        logFailure(log, 'use of certificates not recorded', reason);
        // The previous certificates stay valid until they expire or the next use.
        for (const [key, use] of batch) if (this.uses.get(key) === use) this.uses.delete(key);
        if (!this.isClosed) await new Promise<void>((resolve) => clock.setTimer(RETRY_MS, resolve));
      }
    }
    this.writing = undefined;
  }

  private putUse(transaction: Transaction, { kind, id }: CertificateUse): void {
    const view = this.deps.state.view();
    if (kind === 'node') {
      const node = view.node(id);
      if (node?.value.identity === undefined) return;
      const record = clone(NodeRecordSchema, node.value);
      delete record.identity?.previous;
      transaction.require('node', id, node).put('node', id, record);
      return;
    }
    const credential = view.credential(id);
    if (credential === undefined) return;
    const record = clone(CredentialRecordSchema, credential.value);
    delete record.previous;
    transaction.require('credential', id, credential).put('credential', id, record);
  }
}

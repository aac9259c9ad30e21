import type { MessageInitShape } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import {
  RevisionConflictError,
  type Committed,
  type Compare,
  type Operation,
} from '@cloudless/state-store';
import {
  Compare_CompareTarget,
  type RequestOpSchema,
  type TxnRequestSchema,
  type TxnResponse,
} from '../gen/etcd/etcdserverpb/rpc_pb.js';
import { parseLeaseId } from '../store/lease-id.js';
import type { KeySpace, RevisionMap } from '../store/key-space.js';

type TxnRequestInit = MessageInitShape<typeof TxnRequestSchema>;
type RequestOpInit = MessageInitShape<typeof RequestOpSchema>;

/** One transaction of the store. */
export interface Transaction {
  readonly compares: readonly Compare[];
  readonly operations: readonly Operation[];
}

/** Converts between transactions of the store and those of etcd. */
export class TxnCodec {
  constructor(
    private readonly keys: KeySpace,
    private readonly revisions: RevisionMap,
  ) {}

  /**
   * Returns the request of one transaction, or of several independent ones, each nested with its
   * own compares. Where compares do not hold, etcd returns the compared keys.
   */
  toRequest(group: readonly Transaction[]): TxnRequestInit {
    const [only, second] = group;
    if (only !== undefined && second === undefined) return this.toTxn(only);
    return {
      success: group.map((transaction) => ({
        request: { case: 'requestTxn', value: this.toTxn(transaction) },
      })),
    };
  }

  /** Returns the result of each transaction of the group: committed, or the conflict. */
  fromResponse(
    group: readonly Transaction[],
    response: TxnResponse,
  ): readonly (Committed | CloudlessError)[] {
    const revision = this.revisions.fromEtcd(response.header?.revision ?? 0n);
    return group.map(({ compares }, index) => {
      const own = group.length === 1 ? response : getNested(response, index);
      return own.succeeded ? { revision } : this.findConflict(compares, own);
    });
  }

  private toTxn({ compares, operations }: Transaction): TxnRequestInit {
    return {
      compare: compares.map(({ key, is }) => ({
        target: Compare_CompareTarget.MOD,
        key: this.keys.toEtcdKey(key),
        targetUnion: { case: 'modRevision', value: this.revisions.toCompared(is) },
      })),
      success: operations.map((operation) => this.toOperation(operation)),
      failure: compares.map(({ key }) => ({
        request: {
          case: 'requestRange',
          value: { key: this.keys.toEtcdKey(key), keysOnly: true },
        },
      })),
    };
  }

  private toOperation(operation: Operation): RequestOpInit {
    if ('delete' in operation) {
      const key = this.keys.toEtcdKey(operation.delete);
      return { request: { case: 'requestDeleteRange', value: { key } } };
    }
    const { put, value, lease } = operation;
    return {
      request: {
        case: 'requestPut',
        value: {
          key: this.keys.toEtcdKey(put),
          value,
          ...(lease === undefined ? {} : { lease: parseLeaseId(lease) }),
        },
      },
    };
  }

  private findConflict(compares: readonly Compare[], response: TxnResponse): CloudlessError {
    for (const [index, { key, is }] of compares.entries()) {
      const found = response.responses[index]?.response;
      const entry = found?.case === 'responseRange' ? found.value.kvs[0] : undefined;
      const actual = entry === undefined ? 'absent' : this.revisions.fromEtcd(entry.modRevision);
      if (actual !== is) return new RevisionConflictError(key, is, actual);
    }
    return new CloudlessError('internal', 'etcd refused a transaction whose compares all hold');
  }
}

function getNested(response: TxnResponse, index: number): TxnResponse {
  const nested = response.responses[index]?.response;
  if (nested?.case === 'responseTxn') return nested.value;
  throw new CloudlessError('internal', 'etcd did not answer a transaction of a group');
}

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { CloudlessError } from '@cloudless/base';
import { NodeIdentityKeeper, NodeIdentityStore, type NodeIdentity } from '@cloudless/agent-core';
import { createKeyAndCsr } from '@cloudless/identity/csr';
import type { ClientTls } from '@cloudless/rpc-node/client';
import type { ServerTls } from '@cloudless/rpc-node/server';
import { IdentityDirectory, type IdentityDirectoryOptions } from './identity-directory.js';

/**
 * Opens the identity of this node in its data directory.
 * @param resetCommand - Command by which an operator removes the identity.
 * @throws kind `precondition` when the identity belongs to another node, or other users can access
 *   the files; `internal` when the files are damaged.
 */
export async function openNodeIdentity(
  dataDir: string,
  nodeId: string,
  resetCommand: string,
  options: IdentityDirectoryOptions = {},
): Promise<NodeIdentityKeeper> {
  const files = await IdentityDirectory.open(dataDir, options);
  const store = new NodeIdentityStore(files, resetCommand);
  const stored = await store.load();
  if (stored.identity !== undefined) requireUsable(stored.identity, nodeId, resetCommand);
  return new NodeIdentityKeeper(store, stored, createKeyAndCsr);
}

function requireUsable(identity: NodeIdentity, nodeId: string, resetCommand: string): void {
  if (identity.nodeId !== nodeId)
    throw new CloudlessError(
      'precondition',
      `the data directory has the identity of node ${identity.nodeId}, not of ${nodeId}; start the agent with --name ${identity.nodeId}, choose another data directory, or run: ${resetCommand}`,
    );
  if (!isKeyOf(identity))
    throw new CloudlessError(
      'internal',
      `the key and the certificate of node ${nodeId} do not belong together; restore the identity directory, or run ${resetCommand} and join again`,
    );
}

function isKeyOf({ keyPem, chainPem }: NodeIdentity): boolean {
  try {
    return new X509Certificate(chainPem).checkPrivateKey(createPrivateKey(keyPem));
  } catch {
    return false; // the error could repeat parts of the key
  }
}

const clientTlsByIdentity = new WeakMap<NodeIdentity, ClientTls>();

/**
 * Returns what a client needs for connections as this node. Plain data: threads can share it. The
 * same identity gives the same object, so that connections share the parsed key.
 */
export function toClientTls(identity: NodeIdentity): ClientTls {
  const known = clientTlsByIdentity.get(identity);
  if (known !== undefined) return known;
  const { keyPem, chainPem, trustBundle, coordinatorIds, trustDomain } = identity;
  const clientTls = {
    keyPem,
    chainPem,
    bundlePem: trustBundle.pem,
    serverIds: coordinatorIds,
    serverKinds: ['controller'] as const,
    trustDomain,
  };
  clientTlsByIdentity.set(identity, clientTls);
  return clientTls;
}

/** Returns the current identity. @throws kind `precondition` when this machine has not joined. */
export function requireNodeIdentity(keeper: NodeIdentityKeeper): NodeIdentity {
  if (keeper.current === undefined)
    throw new CloudlessError('precondition', 'this machine has not joined its cluster yet');
  return keeper.current;
}

/** Returns the TLS settings of the servers of this node, which follow its identity. */
export function toServerTls(keeper: NodeIdentityKeeper): ServerTls {
  return {
    getContext: () => {
      const { keyPem, chainPem } = requireNodeIdentity(keeper);
      return { keyPem, chainPem };
    },
    onContextChange: (listener) => keeper.onChange(listener),
  };
}

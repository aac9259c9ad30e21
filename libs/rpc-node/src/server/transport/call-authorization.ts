import type { DescMethod } from '@bufbuild/protobuf';
import { type ConnectError, createContextKey, type ContextKey } from '@connectrpc/connect';
import { toConnectError } from '@cloudless/api';
import type { Principal } from '@cloudless/identity';
import { toPeerKey } from '../admission/peer-key.js';
import type { ClientConnection } from './connection.js';

/** The client of one call, whose credentials allowed the call at its start. */
export interface Caller {
  readonly principal: Principal;
  /** Id of the connection; for logs. */
  readonly connectionId: string;
  /**
   * Address of the client when another server has forwarded the call. Undefined: the address of the
   * connection.
   */
  readonly address?: string | undefined;
  /**
   * Runs each second while the call is open, and after `RpcServer.recheckCallers`. Must return fast.
   * @throws CloudlessError when the call must end, for example because its certificate has expired.
   */
  check(): void;
}

/** The part of a call that its authorization depends on. */
export interface CallCredentials {
  readonly method: DescMethod;
  /** Undefined when the connection closed while the call came in. */
  readonly connection: ClientConnection | undefined;
  readonly header: Headers;
}

/**
 * Decides whether a client may call an RPC, before the server reads the request.
 * @throws CloudlessError `unauthenticated` or `denied` to refuse the call.
 */
export type AuthorizeCall = (call: CallCredentials) => Caller;

/** Context value of each call: its client. Undefined when the server has no `authorize`. */
export const callerKey: ContextKey<Caller | undefined> = createContextKey<Caller | undefined>(
  undefined,
  { description: 'client of the call' },
);

/** Result of an authorization: at most one of the two. */
export interface Authorization {
  readonly caller?: Caller;
  /** The error that the client receives. */
  readonly refusal?: ConnectError;
}

/** Runs `authorize`, and returns what `authorize` throws as the error for the client. */
export function authorizeCall(
  authorize: AuthorizeCall | undefined,
  call: CallCredentials,
): Authorization {
  if (authorize === undefined) return {};
  try {
    return { caller: authorize(call) };
  } catch (reason) {
    return { refusal: toConnectError(reason) };
  }
}

/** Returns true when a call may run and its client is known, or when the server knows no clients. */
export function hasIdentity({ caller, refusal }: Authorization): boolean {
  return refusal === undefined && caller?.principal.kind !== 'unauthenticated';
}

/**
 * Returns the name of the client whose limits a call counts against. Clients without an identity
 * are told apart by their connections, and those whose calls another server forwards over one
 * connection by their addresses.
 */
export function toLimitedClient(
  caller: Caller | undefined,
  connection: ClientConnection | undefined,
): string {
  if (caller !== undefined && !NAMELESS_KINDS.includes(caller.principal.kind))
    return caller.principal.name;
  const id = connection?.id ?? 'closed connection';
  return caller?.address === undefined ? id : `${id} ${toPeerKey(caller.address)}`;
}

/** Kinds of principals that several clients share. */
const NAMELESS_KINDS: readonly string[] = ['anonymous-loopback', 'unauthenticated'];

import { createClient } from '@connectrpc/connect';
import type { CallOptions, Client, Transport } from '@connectrpc/connect';
import { toJson } from '@bufbuild/protobuf';
import type { DescMessage, JsonValue, MessageShape } from '@bufbuild/protobuf';
import {
  AdminService,
  AgentService,
  ConfigsService,
  CoordinatorService,
  IdentityService,
  NetworkService,
  PolicyService,
  SecretsService,
  UserService,
  type AdminClient,
  type AgentClient,
  type IdentityClient,
  type UserClient,
} from '@cloudless/api';
import type { CliIo, CoordinatorConnection, ServerAccess } from '../io/io.js';
import type { Settings } from '../config/settings.js';
import type { Style } from '../output/style.js';
import { LocalSession } from './local-session.js';

/** Client of the service for network services and their endpoints. */
export type NetworkClient = Client<typeof NetworkService>;

/** Client of the service for policies. */
export type PolicyClient = Client<typeof PolicyService>;

/** Client of the service for secrets. */
export type SecretsClient = Client<typeof SecretsService>;

/** Client of the service for configs. */
export type ConfigsClient = Client<typeof ConfigsService>;

/** Client of the coordinator service, the public API for workloads, nodes and events. */
export type CoordinatorClient = Client<typeof CoordinatorService>;

/**
 * Time limit of a unary call without `--timeout`. The coordinator answers within milliseconds, so a
 * longer wait shows a fault.
 */
const CALL_TIMEOUT_MS = 30_000;

/** The clients, settings and output of a command that calls a coordinator. */
export class CliSession extends LocalSession {
  private connection: CoordinatorConnection | undefined;
  private adminClient: AdminClient | undefined;
  private agentClient: AgentClient | undefined;
  private configsClient: ConfigsClient | undefined;
  private coordinatorClient: CoordinatorClient | undefined;
  private identityClient: IdentityClient | undefined;
  private networkClient: NetworkClient | undefined;
  private policyClient: PolicyClient | undefined;
  private secretsClient: SecretsClient | undefined;
  private userClient: UserClient | undefined;
  private renewal: Renewal | undefined;

  /**
   * @param access - Required for a server with https.
   * @param createRenewal - Creates the renewal of the identity of `access`, which runs from the first
   *   call on. Absent: nothing to renew.
   */
  constructor(
    io: CliIo,
    settings: Settings,
    style: Style,
    private readonly access?: ServerAccess,
    private readonly createRenewal?: (getClient: () => UserClient) => Renewal,
  ) {
    super(io, settings, style);
  }

  /** Client of the coordinator; connects on first use. */
  get client(): CoordinatorClient {
    return (this.coordinatorClient ??= createClient(CoordinatorService, this.transport));
  }

  /** Client of the admin service of the coordinator. */
  get admin(): AdminClient {
    return (this.adminClient ??= createClient(AdminService, this.transport));
  }

  /** Client of the agent service, which the coordinator serves for the containers of all nodes. */
  get agents(): AgentClient {
    return (this.agentClient ??= createClient(AgentService, this.transport));
  }

  /** Client of the service for join tokens, bans and the certificate authority. */
  get identities(): IdentityClient {
    return (this.identityClient ??= createClient(IdentityService, this.transport));
  }

  /** Client of the service for network services and their endpoints. */
  get network(): NetworkClient {
    return (this.networkClient ??= createClient(NetworkService, this.transport));
  }

  /** Client of the service for policies. */
  get policies(): PolicyClient {
    return (this.policyClient ??= createClient(PolicyService, this.transport));
  }

  /** Client of the service for secrets. */
  get secrets(): SecretsClient {
    return (this.secretsClient ??= createClient(SecretsService, this.transport));
  }

  /** Client of the service for configs. */
  get configs(): ConfigsClient {
    return (this.configsClient ??= createClient(ConfigsService, this.transport));
  }

  /** Client of the service for users and their credentials. */
  get users(): UserClient {
    return (this.userClient ??= createClient(UserService, this.transport));
  }

  private get transport(): Transport {
    if (this.connection === undefined) {
      this.connection = this.io.connect(this.settings.server, this.access);
      this.renewal = this.createRenewal?.(() => this.users);
      this.renewal?.start();
    }
    return this.connection.transport;
  }

  /**
   * Returns the options of a unary call.
   * @param timeoutMs - Time limit of the call. Default: `--timeout`, or 30 s without that flag.
   */
  getCallOptions(timeoutMs = this.settings.timeoutMs ?? CALL_TIMEOUT_MS): CallOptions {
    return { ...this.getStreamOptions(), timeoutMs };
  }

  /**
   * Returns the options of a streaming call, which has no time limit.
   * @param signal - Cancels the call. Default: Ctrl-C.
   */
  getStreamOptions(signal: AbortSignal = this.io.signal): CallOptions {
    const { requestId } = this.settings;
    return { signal, ...(requestId === '' ? {} : { headers: { 'x-request-id': requestId } }) };
  }

  /**
   * Returns the request id for one request; empty without `--request-id`. A command that sends
   * several requests must use a different id for each, because the coordinator stores each id
   * together with its request.
   * @param part - Distinguishes the requests of the command. Omit it when the command sends one
   *   request.
   */
  getRequestId(part?: string): string {
    const { requestId } = this.settings;
    return requestId === '' || part === undefined ? requestId : `${requestId}/${part}`;
  }

  /**
   * Closes the connection, which cancels all calls. Does nothing when no call was made. Before, waits
   * for a renewal of the identity that is in progress, at most 2 s: the results are printed already.
   */
  async close(): Promise<void> {
    await this.renewal?.finish(RENEWAL_WAIT_MS);
    this.connection?.close();
  }
}

/** Renews the identity of a session, see `IdentityRenewal`. */
interface Renewal {
  start(): void;
  finish(timeoutMs: number): Promise<void>;
}

/** Longest time that the end of a command waits for a renewal of the identity. */
const RENEWAL_WAIT_MS = 2_000;

/**
 * Converts a message to protobuf JSON. Fields with zero values are included, so that scripts find
 * every field.
 */
export function toMessageJson<Desc extends DescMessage>(
  schema: Desc,
  message: MessageShape<Desc>,
): JsonValue {
  return toJson(schema, message, { alwaysEmitImplicit: true });
}

/**
 * Returns an object in the form of `-o json` that `apply` accepts: {@link toMessageJson}, and the
 * kind of the object.
 */
export function toKindJson<Desc extends DescMessage>(
  kind: string,
  schema: Desc,
  message: MessageShape<Desc>,
): Record<string, JsonValue> {
  const json = toMessageJson(schema, message) as Readonly<Record<string, JsonValue>>;
  return { kind, ...json };
}

import { request } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { RunningProgram, runToEnd } from './processes.js';

/** Full names of the services. */
export const COORDINATOR = 'cloudless.api.CoordinatorService';
export const AGENT = 'cloudless.api.AgentService';
export const ADMIN = 'cloudless.api.AdminService';
export const IDENTITY = 'cloudless.api.IdentityService';
export const NETWORK = 'cloudless.api.NetworkService';
export const NODE_NETWORK = 'cloudless.api.NodeNetworkService';
export const CONFIGS = 'cloudless.api.ConfigsService';
export const POLICY = 'cloudless.api.PolicyService';
export const SECRETS = 'cloudless.api.SecretsService';
export const USER = 'cloudless.api.UserService';

/** The result of a call, independent of the protocol. */
export interface CallResult {
  /** `ok`, or the code as Connect spells it, for example `not_found`. */
  readonly code: string;
  /** Error message; empty when `code` is `ok`. */
  readonly message: string;
  /** The received messages as JSON with zero values. */
  readonly items: readonly unknown[];
  /** Details of the error as the tool prints them; only with `buf curl`. */
  readonly details?: unknown;
}

/** A tool that can send a call in one protocol. */
export interface Caller {
  /** Name for test titles. */
  readonly name: string;
  /**
   * Sends a call and reads all responses.
   * @param url - Base URL of the server.
   * @param method - `service/method`.
   * @param body - Request message as JSON.
   */
  call(url: string, method: string, body: unknown): Promise<CallResult>;
}

/**
 * The `buf` binary. The script that npm installs starts the binary as a child process that a signal
 * to the script would not end.
 */
const buf = createRequire(import.meta.url).resolve(
  `@bufbuild/buf-${process.platform}-${process.arch}/bin/buf`,
);

type Protocol = 'connect' | 'grpc' | 'grpcweb';

/** Creates a caller with `buf curl` over HTTP/2 that reads the schema by server reflection. */
export function createBufCurl(protocol: Protocol): Caller {
  return createCurlCaller(`buf curl, ${protocol} over HTTP/2`, [
    '--protocol',
    protocol,
    '--http2-prior-knowledge',
  ]);
}

/**
 * Creates a caller with `buf curl` over HTTP/1.1. Reflection needs HTTP/2, so `buf` reads the
 * schema from a file.
 * @param schema - Returns the path of the file of {@link buildSchema}; called for each call.
 */
export function createBufCurlHttp1(
  protocol: Exclude<Protocol, 'grpc'>,
  schema: () => string,
): Caller {
  return {
    name: `buf curl, ${protocol} over HTTP/1.1`,
    call: (url, method, body) =>
      createCurlCaller('', ['--protocol', protocol, '--schema', schema()]).call(url, method, body),
  };
}

/**
 * Writes the public schema to a file in the directory.
 * @returns The path of the file.
 */
export async function buildSchema(directory: string): Promise<string> {
  const file = join(directory, 'schema.binpb');
  const { code, stderr } = await runToEnd(buf, ['build', '-o', file]);
  if (code !== 0) throw new Error(stderr);
  return file;
}

function createCurlCaller(name: string, flags: readonly string[]): Caller {
  return {
    name,
    call: async (url, method, body) => {
      const { code, stdout, stderr } = await runToEnd(
        buf,
        createCurlArgs(flags, url, method, body),
      );
      const items = parseDocuments(stdout.split('\n'));
      if (code === 0) return { code: 'ok', message: '', items };
      const error = parseDocuments(stderr.split('\n'))[0] as Partial<CallResult> | undefined;
      if (error === undefined) throw new Error(`buf curl ended with ${code}: ${stderr}`);
      const { code: name = '', message = '', details = [] } = error;
      return { code: name, message, items, details };
    },
  };
}

function createCurlArgs(
  flags: readonly string[],
  url: string,
  method: string,
  body: unknown,
): readonly string[] {
  return ['curl', ...flags, '--emit-defaults', '--data', JSON.stringify(body), `${url}/${method}`];
}

/** Lists the services of a server by reflection. */
export async function listServices(url: string): Promise<readonly string[]> {
  const { code, stdout, stderr } = await runToEnd(buf, [
    'curl',
    '--http2-prior-knowledge',
    '--list-services',
    url,
  ]);
  if (code !== 0) throw new Error(stderr);
  return stdout.trim().split('\n');
}

/** A running `buf curl` with a server stream. */
export class CurlStream {
  private constructor(readonly process: RunningProgram) {}

  static start(protocol: Protocol, url: string, method: string, body: unknown): CurlStream {
    const flags = ['--protocol', protocol, '--http2-prior-knowledge'];
    return new CurlStream(RunningProgram.start(buf, createCurlArgs(flags, url, method, body)));
  }

  /** The messages received so far. */
  get items(): readonly unknown[] {
    return parseDocuments(this.process.lines);
  }

  /**
   * Waits until the received messages satisfy a condition.
   * @returns All messages received so far.
   */
  async waitUntil(fits: (items: readonly unknown[]) => boolean): Promise<readonly unknown[]> {
    await this.process.waitForLine(() => fits(this.items));
    return this.items;
  }
}

/** Parses consecutive indented JSON objects; the last object may be incomplete. */
function parseDocuments(lines: readonly string[]): readonly unknown[] {
  const documents: unknown[] = [];
  let openLines: string[] = [];
  for (const line of lines) {
    openLines = line === '{' ? [line] : [...openLines, line];
    if (line === '{}') documents.push({});
    if (line !== '}') continue;
    documents.push(JSON.parse(openLines.join('\n')));
    openLines = [];
  }
  return documents;
}

/** Sends a unary call as a POST of JSON over HTTP/1.1, the Connect protocol for unary calls. */
export const plainHttp: Caller = {
  name: 'POST of JSON',
  call: async (url, method, body) => {
    const { status, json } = await postRaw(url, method, JSON.stringify(body));
    if (status === 200) return { code: 'ok', message: '', items: [json] };
    const { code = '', message = '' } = json as Partial<CallResult>;
    return { code, message, items: [] };
  },
};

/** An HTTP response. */
export interface HttpAnswer {
  readonly status: number;
  readonly text: string;
  /** The parsed body when the body is JSON. */
  readonly json: unknown;
}

/**
 * Sends a POST request with an unmodified body. Unlike `fetch`, this function can send any header,
 * also `Host`.
 */
export function postRaw(
  url: string,
  method: string,
  body: string | Uint8Array,
  headers: Readonly<Record<string, string>> = {},
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const options = {
      method: 'POST',
      agent: false,
      headers: { 'content-type': 'application/json', ...headers },
    };
    request(`${url}/${method}`, options, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.once('error', reject);
      response.once('end', () =>
        resolve({ status: response.statusCode ?? 0, text, json: parseJson(text) }),
      );
    })
      .once('error', reject)
      .end(body);
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

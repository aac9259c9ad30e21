import { request } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Running, runToEnd } from './processes.js';

export const COORDINATOR = 'cloudless.api.CoordinatorService';
export const AGENT = 'cloudless.api.AgentService';
export const ADMIN = 'cloudless.api.AdminService';

/** What a call came to, however it was sent. */
export interface Answer {
  /** `ok`, or the code as Connect spells it: `not_found`. */
  readonly code: string;
  readonly message: string;
  /** The messages that came back, as JSON with zero values. */
  readonly items: readonly unknown[];
}

/** One way to send a call, as a user has at hand. */
export interface Caller {
  readonly name: string;
  call(url: string, method: string, body: unknown): Promise<Answer>;
}

/**
 * `buf` itself: the script that npm installs starts it as a child, which a signal to the script
 * would not end.
 */
const buf = createRequire(import.meta.url).resolve(
  `@bufbuild/buf-${process.platform}-${process.arch}/bin/buf`,
);

type Protocol = 'connect' | 'grpc' | 'grpcweb';

/**
 * `buf curl` with the schema taken from the server's reflection, over HTTP/2 as reflection needs
 * it.
 */
export function bufCurl(protocol: Protocol): Caller {
  return curlCaller(`buf curl, ${protocol} over HTTP/2`, [
    '--protocol',
    protocol,
    '--http2-prior-knowledge',
  ]);
}

/**
 * `buf curl` over HTTP/1.1. Reflection is not possible there, so the schema comes from a file made
 * by {@link buildSchema}.
 */
export function bufCurlHttp1(protocol: Exclude<Protocol, 'grpc'>, schema: () => string): Caller {
  return {
    name: `buf curl, ${protocol} over HTTP/1.1`,
    call: (url, method, body) =>
      curlCaller('', ['--protocol', protocol, '--schema', schema()]).call(url, method, body),
  };
}

/** Writes the published schema to a file. */
export async function buildSchema(directory: string): Promise<string> {
  const file = join(directory, 'schema.binpb');
  const { code, stderr } = await runToEnd(buf, ['build', '-o', file]);
  if (code !== 0) throw new Error(stderr);
  return file;
}

function curlCaller(name: string, flags: readonly string[]): Caller {
  return {
    name,
    call: async (url, method, body) => {
      const { code, stdout, stderr } = await runToEnd(buf, curlArgs(flags, url, method, body));
      const items = documentsIn(stdout.split('\n'));
      if (code === 0) return { code: 'ok', message: '', items };
      const error = documentsIn(stderr.split('\n'))[0] as Partial<Answer> | undefined;
      if (error === undefined) throw new Error(`buf curl ended with ${code}: ${stderr}`);
      return { code: error.code ?? '', message: error.message ?? '', items };
    },
  };
}

function curlArgs(
  flags: readonly string[],
  url: string,
  method: string,
  body: unknown,
): readonly string[] {
  return ['curl', ...flags, '--emit-defaults', '--data', JSON.stringify(body), `${url}/${method}`];
}

/** The names that reflection lists. */
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

/** A `buf curl` whose call goes on. */
export class CurlStream {
  private constructor(readonly process: Running) {}

  static start(protocol: Protocol, url: string, method: string, body: unknown): CurlStream {
    const flags = ['--protocol', protocol, '--http2-prior-knowledge'];
    return new CurlStream(Running.start(buf, curlArgs(flags, url, method, body)));
  }

  /** All messages so far. */
  get items(): readonly unknown[] {
    return documentsIn(this.process.lines);
  }

  /** Waits until the messages so far are as `fits` says. @returns them. */
  async until(fits: (items: readonly unknown[]) => boolean): Promise<readonly unknown[]> {
    await this.process.line(() => fits(this.items));
    return this.items;
  }
}

/**
 * JSON objects that are printed with indentation, one after the other; the last one may still be on
 * its way.
 */
function documentsIn(lines: readonly string[]): readonly unknown[] {
  const documents: unknown[] = [];
  let open: string[] = [];
  for (const line of lines) {
    open = line === '{' ? [line] : [...open, line];
    if (line === '{}') documents.push({});
    if (line !== '}') continue;
    documents.push(JSON.parse(open.join('\n')));
    open = [];
  }
  return documents;
}

/** Plain HTTP/1.1: a POST of JSON, which is the Connect protocol for calls with one answer. */
export const plainHttp: Caller = {
  name: 'POST of JSON',
  call: async (url, method, body) => {
    const { status, json } = await post(url, method, JSON.stringify(body));
    if (status === 200) return { code: 'ok', message: '', items: [json] };
    const { code = '', message = '' } = json as Partial<Answer>;
    return { code, message, items: [] };
  },
};

/** An answer of plain HTTP. */
export interface HttpAnswer {
  readonly status: number;
  readonly text: string;
  /** The body, where it is JSON. */
  readonly json: unknown;
}

/** POSTs a body as it is. Unlike `fetch` it sends any header, also `Host`. */
export function post(
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
        resolve({ status: response.statusCode ?? 0, text, json: parsed(text) }),
      );
    })
      .once('error', reject)
      .end(body);
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

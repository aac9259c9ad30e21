import type { DescMethod } from '@bufbuild/protobuf';
import { Code, ConnectError, createContextValues } from '@connectrpc/connect';
import { universalResponseToNodeResponse } from '@connectrpc/connect-node';
import type { UniversalHandler, UniversalServerResponse } from '@connectrpc/connect/protocol';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import { beginLongWaitKey } from '@cloudless/api';
import { definedFields, errorFields, type Clock, type Log } from '@cloudless/base';
import type {
  AdmittedCall,
  OverloadProtection,
  IncomingCall,
} from '../admission/overload-protection.js';
import { withInputErrors } from '../messages/input-errors.js';
import { inspectBody } from '../messages/inspect-body.js';
import { allowsGet, toPostRequest, type PostRequest } from '../messages/plain-requests.js';
import { toConnectStream, toPlainStream } from '../messages/plain-streams.js';
import type { RpcLimits } from '../options.js';
import { toHeaders, type AnyRequest, type AnyResponse } from './http-types.js';
import { checkRequestOrigin } from './origin-check.js';
import { renderHelp } from './help-text.js';
import {
  authorizeCall,
  callerKey,
  hasIdentity,
  type Authorization,
  type AuthorizeCall,
} from './call-authorization.js';
import { connectionKey, type ServerConnection } from './connection.js';
import { CallCanceller, callCancellerKey } from './call-lifetimes.js';
import { shouldLogOccurrence } from './log-sampling.js';
import { toRequestBody, endAfterRequestBody, enforceBodyTimeout } from './request-body.js';
import { toUniversalRequest } from './universal-request.js';

export interface DispatchSettings {
  readonly handlers: readonly UniversalHandler[];
  readonly clock: Clock;
  readonly log: Log;
  readonly bodyTimeoutMs: number;
  readonly protection: OverloadProtection;
  readonly limits: RpcLimits;
  readonly maxHeaderBytes: number;
  readonly allowedOrigins: readonly string[];
  readonly authorize?: AuthorizeCall | undefined;
  /** The RPC whose clients may see the list of RPCs. */
  readonly listingMethod: DescMethod;
}

/**
 * Passes one HTTP request to its RPC handler, or answers with an error. Never throws.
 * @param connection - Undefined when the connection closed while the request came in.
 */
export type Dispatch = (
  connection: ServerConnection | undefined,
  request: AnyRequest,
  response: AnyResponse,
) => void;

/** The end of a call that does not count as running. */
const NO_LIMITS: Omit<AdmittedCall, 'body'> = {
  withFinish: (responseBody) => responseBody,
  finish: () => undefined,
};

/**
 * Checks host, origin, head size and path of each request and the right of its client to call, then
 * applies the body timeout and the overload protection before it runs Connect's handler.
 */
export function createDispatch(settings: DispatchSettings): Dispatch {
  const { log, protection } = settings;
  const byPath = new Map(settings.handlers.map((handler) => [handler.requestPath, handler]));

  const serveCall = async (
    handler: UniversalHandler,
    connection: ServerConnection | undefined,
    request: AnyRequest,
    response: AnyResponse,
  ) => {
    enforceBodyTimeout(settings, handler, request, response);
    const control = new CallCanceller();
    const contextValues = createContextValues()
      .set(connectionKey, connection)
      .set(callCancellerKey, control);
    try {
      const universal = toUniversalRequest(request, response, contextValues);
      const { signal, url } = universal;
      const post = toPostRequest(handler, universal.method, url, universal.header);
      const header = post?.header ?? universal.header;
      const authorization = authorizeCall(settings.authorize, {
        method: handler.method,
        connection,
        header: universal.header,
      });
      contextValues.set(callerKey, authorization.caller);
      if (hasIdentity(authorization)) connection?.onIdentifiedCall();
      const call: IncomingCall = {
        handler,
        connection,
        request,
        response,
        header,
        signal,
        control,
        caller: authorization.caller,
      };
      if (authorization.refusal !== undefined && !isCall(call, post)) {
        await protection.waitForRefusal(call);
        sendRefusal(response, authorization.refusal);
        return;
      }
      const admitted = await admit(call, post, authorization);
      const { body, withFinish, finish } = admitted;
      contextValues.set(beginLongWaitKey, finish);
      const checked = inspectBody(
        handler,
        { header, body: post?.queryBody ?? body },
        settings.limits,
        admitted.waitForLargeMessage,
      );
      const inspected = post?.format === undefined ? checked : toConnectStream(checked);
      const method = post === undefined ? universal.method : 'POST';
      const answer = addErrorText(
        await withInputErrors(handler)({ ...universal, method, ...inspected }),
        handler,
        header,
      );
      const result = post?.format === undefined ? answer : await toPlainStream(answer, post.format);
      if (post?.queryBody !== undefined && !result.header?.has('Cache-Control'))
        response.setHeader('Cache-Control', 'no-cache');
      const responseBody =
        result.body &&
        protection.paceResponse(
          endAfterRequestBody(withFinish(result.body), handler, request),
          call,
        );
      await universalResponseToNodeResponse(
        { ...result, ...definedFields({ body: responseBody }) },
        response,
      );
    } catch (reason) {
      // The response could not be written, usually because the client has gone. Connect converts
      // exceptions of handlers to responses, so they never get here.
      const isClientGone =
        response.destroyed ||
        hasClientGone(request) ||
        ConnectError.from(reason).code === Code.Aborted;
      const level = isClientGone ? 'debug' : 'warn';
      log[level]('rpc response not delivered', {
        rpc: handler.method.name,
        connectionId: connection?.id,
        ...errorFields(reason),
      });
      response.destroy();
    }
  };

  /**
   * Admits a call. A refused call also goes to Connect, with a body that fails: Connect encodes the
   * error in the protocol of the call. Requests that Connect refuses itself need no admission.
   */
  const admit = async (
    call: IncomingCall,
    post: PostRequest | undefined,
    { refusal }: Authorization,
  ): Promise<AdmittedCall> => {
    const { request, signal, control } = call;
    if (!isCall(call, post)) return { body: toRequestBody(request), ...NO_LIMITS };
    try {
      if (refusal !== undefined) {
        await protection.waitForRefusal(call);
        throw refusal;
      }
      return await protection.admit(call);
    } catch (reason) {
      if (signal.aborted || !(reason instanceof ConnectError)) throw reason;
      control.cancel(reason);
      return { body: createFailingBody(reason), ...NO_LIMITS };
    }
  };

  let refusedCount = 0;
  return (connection, request, response) => {
    request.on('error', ignoreError);
    response.on('error', ignoreError);
    if (measureHead(request) > settings.maxHeaderBytes) {
      sendError(
        response,
        431,
        'resource_exhausted',
        `the head of the request is larger than ${settings.maxHeaderBytes} bytes`,
      );
      return;
    }
    const hosts = countHostHeaders(request);
    if (hosts > 1) {
      sendError(
        response,
        400,
        'invalid_argument',
        `the request has ${hosts} Host headers; send one`,
      );
      return;
    }
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const handler = byPath.get(path);
    const decision = checkRequestOrigin(request, {
      allowedOrigins: settings.allowedOrigins,
      tls: isSecure(request),
      allowedMethods: handler === undefined ? METHODS : listMethods(handler),
    });
    if (decision.kind === 'refuse') {
      refusedCount += 1;
      if (shouldLogOccurrence(refusedCount))
        log.warn('requests refused', {
          connectionId: connection?.id,
          reason: decision.reason,
          refused: refusedCount,
        });
      sendError(response, 403, 'permission_denied', decision.reason);
      return;
    }
    for (const [name, value] of Object.entries(decision.headers)) response.setHeader(name, value);
    if (decision.kind === 'preflight') response.writeHead(204).end();
    else if (handler !== undefined) void serveCall(handler, connection, request, response);
    else serveOtherPath(settings, connection, request, response);
  };
}

/** Answers at a path without an RPC: with help, or with an error. */
function serveOtherPath(
  settings: DispatchSettings,
  connection: ServerConnection | undefined,
  request: AnyRequest,
  response: AnyResponse,
): void {
  const { refusal } = authorizeCall(settings.authorize, {
    method: settings.listingMethod,
    connection,
    header: toHeaders(request),
  });
  const isRoot = (request.url ?? '').split('?', 1)[0] === '/';
  if (refusal !== undefined && !isRoot) sendRefusal(response, refusal);
  else if (METHODS_OF_READERS.includes(request.method ?? '')) {
    const help = renderHelp(settings.handlers, toOrigin(request), refusal?.rawMessage);
    sendText(
      response,
      isRoot ? 200 : 404,
      `${isRoot ? '' : 'There is no RPC at this path.\n\n'}${help}`,
    );
  } else
    sendError(
      response,
      404,
      'unimplemented',
      'no RPC at this path; paths look like /cloudless.api.CoordinatorService/ListWorkloads, and GET / lists them',
    );
}

/**
 * Returns true when Connect can answer in the protocol of the call. Connect refuses all other
 * requests by their HTTP method or content type.
 */
function isCall({ handler, header }: IncomingCall, post: PostRequest | undefined): boolean {
  return (
    post !== undefined &&
    (post.format !== undefined || handler.supportedContentType(header.get('content-type') ?? ''))
  );
}

/**
 * Listener of `error` events of requests and responses. Reads and writes report the same errors,
 * but without a listener Node would end the process.
 */
const ignoreError = (): void => undefined;

/** Adds an error text to the responses that Connect sends with only a status. */
function addErrorText(
  response: UniversalServerResponse,
  handler: UniversalHandler,
  requestHeader: Headers,
): UniversalServerResponse {
  if (response.body !== undefined) return response;
  const isPlain = /json/i.test(requestHeader.get('content-type') ?? '');
  const help =
    response.status === 415 && isPlain
      ? (HELP_WITH_STREAMS[handler.method.methodKind] ?? HELP_BY_STATUS[415])
      : HELP_BY_STATUS[response.status];
  if (help === undefined) return response;
  const header = new Headers(response.header);
  header.set('Content-Type', 'application/json');
  if (response.status === 405) header.set('Allow', listMethods(handler).join(', '));
  return { ...response, header, body: toBody(errorJson('unimplemented', help)) };
}

/** Error texts by HTTP status. */
const HELP_BY_STATUS: Readonly<Record<number, string>> = {
  405: 'this RPC needs POST; a GET is possible only for RPCs that change nothing',
  415: 'this content type is not served; use application/json or application/proto (Connect), application/grpc or application/grpc-web',
  505: 'streams in both directions need HTTP/2; try --http2-prior-knowledge',
};

/** Error texts for plain JSON that is sent to an RPC with streams. */
const HELP_WITH_STREAMS: Partial<
  Readonly<Record<UniversalHandler['method']['methodKind'], string>>
> = {
  server_streaming:
    'this RPC answers with a stream; add the header "Accept: application/x-ndjson" for one JSON message in each line or "Accept: text/event-stream" for server-sent events, or use a client of Connect, gRPC or gRPC-Web',
  client_streaming:
    'this RPC receives a stream; use a client of Connect (application/connect+json), gRPC or gRPC-Web',
  bidi_streaming:
    'this RPC has streams in both directions; use a client of Connect (application/connect+json) or gRPC over HTTP/2',
};

/** Methods that this server answers at all. */
const METHODS: readonly string[] = ['GET', 'POST'];
/** Methods of people who look at an address; calls use POST, or GET at the path of an RPC. */
const METHODS_OF_READERS: readonly string[] = ['GET', 'HEAD'];

function listMethods({ method }: UniversalHandler): readonly string[] {
  return allowsGet(method) ? METHODS : ['POST'];
}

/** Returns the address that the client used. */
function toOrigin(request: AnyRequest): string {
  const authority = request.headers[':authority'] ?? request.headers.host ?? '';
  return `${isSecure(request) ? 'https' : 'http'}://${String(authority)}`;
}

function isSecure({ socket }: AnyRequest): boolean {
  return 'encrypted' in socket && socket.encrypted === true;
}

/** Sends the refusal of a client that may not call, without Connect. */
function sendRefusal(response: AnyResponse, refusal: ConnectError): void {
  sendJson(response, codeToHttpStatus(refusal.code), errorToJson(refusal, undefined));
}

function sendText(response: AnyResponse, status: number, text: string): void {
  response.writeHead(status, {
    'Content-Type': 'text/plain; charset=utf-8',
    'Content-Length': Buffer.byteLength(text),
    'X-Content-Type-Options': 'nosniff',
  });
  response.end(text);
}

function hasClientGone(request: AnyRequest): boolean {
  return 'stream' in request
    ? request.stream.destroyed || request.stream.closed
    : request.destroyed || request.socket.destroyed;
}

function createFailingBody(reason: ConnectError): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(reason) }) };
}

async function* toBody(text: string): AsyncIterable<Uint8Array> {
  yield Buffer.from(text);
}

/** Codes of the errors that this file sends without Connect. */
type RefusalCode =
  'invalid_argument' | 'permission_denied' | 'resource_exhausted' | 'unimplemented';

/** Encodes an error in the JSON form of Connect. */
function errorJson(code: RefusalCode, message: string): string {
  return JSON.stringify({ code, message });
}

function sendError(
  response: AnyResponse,
  status: number,
  code: RefusalCode,
  message: string,
): void {
  sendJson(response, status, { code, message });
}

function sendJson(response: AnyResponse, status: number, content: object): void {
  const body = JSON.stringify(content);
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  });
  response.end(body);
}

/**
 * Counts the Host headers. Node keeps only the first, but a proxy in front of the server may have
 * checked another (RFC 9112, section 3.2).
 */
function countHostHeaders({ rawHeaders }: AnyRequest): number {
  return rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === 'host')
    .length;
}

/**
 * Returns the size of a request head as HTTP/2 counts it (RFC 9113, section 6.5.2), in bytes. Node
 * enforces its own limit only for HTTP/1.1.
 */
function measureHead(request: AnyRequest): number {
  return request.rawHeaders.reduce((sum, text) => sum + text.length + FIELD_OVERHEAD_BYTES / 2, 0);
}

/** Bytes that HTTP/2 adds for each field: half is added for the name, half for the value. */
const FIELD_OVERHEAD_BYTES = 32;

import type { Duplex } from 'node:stream';
import type { IngressService } from '../model.js';

/** The client of a request. */
export interface IngressClient {
  readonly address: string;
  readonly port: number;
  /** Address and port at which the client reached this node, such as "10.0.0.5:443". */
  readonly local: string;
}

/** An endpoint that was chosen for one request. */
export interface ChosenBackend {
  readonly kind: 'chosen';
  /** Id of the endpoint. */
  readonly endpoint: string;
  /** True when a connection may carry the requests of several clients. */
  readonly isShareable: boolean;
  /**
   * Connects to the endpoint, within the time limit of the service. The stream ends with an error
   * when the endpoint is gone.
   * @param trace - Span of the request, in the format of the header `traceparent`. Undefined: the
   *   request is not traced.
   * @throws when the endpoint accepts no connection.
   */
  connect(trace: string | undefined): Promise<Duplex>;
  /** Ends the use of the endpoint by the request. Called once. */
  release(): void;
}

/** Chooses endpoints of services. */
export interface IngressBackends {
  /**
   * Chooses an endpoint for one request.
   * @param exclude - Ids of endpoints that were tried already.
   * @returns `refused` with the reason, for people, when the service has no endpoint to choose.
   */
  choose(request: {
    readonly service: IngressService;
    readonly port: number;
    readonly client: IngressClient;
    readonly exclude: ReadonlySet<string>;
  }): ChosenBackend | { readonly kind: 'refused'; readonly reason: string };
}

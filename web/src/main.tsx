import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { makeQueryClient } from "./api/queries";
import { App } from "./app";
import "./styles/index.css";

const root = document.getElementById("root");
if (root !== null) {
  createRoot(root).render(
    <StrictMode>
      <App client={makeQueryClient()} />
    </StrictMode>,
  );
}
